"""Passages of lift gates as they arrive: one row per Kafka record."""

import headwater as hw

lift_rides = hw.topic("lift-rides")
