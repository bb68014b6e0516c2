"""CPU metrics as they arrive: one row per Kafka record."""

import headwater as hw

iot_metrics = hw.topic("iot-data-input")
