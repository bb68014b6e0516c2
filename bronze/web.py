"""Page views as they arrive: one row per Kafka record."""

import headwater as hw

page_views = hw.topic("page-views")
