"""Purchases as they arrive: one row per Kafka record."""

import headwater as hw

purchases = hw.topic("purchases")
