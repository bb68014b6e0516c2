"""The three kinds of events as they arrive: one row per Kafka record."""

import headwater as hw

person = hw.topic("nexmark-person")
auction = hw.topic("nexmark-auction")
bid = hw.topic("nexmark-bid")
