"""Reports of buses as they arrive: one row per Kafka record."""

import headwater as hw

bus_positions = hw.topic("bus-positions")
