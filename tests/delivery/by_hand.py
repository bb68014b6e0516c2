"""What each gold table of the reference project holds, said again: a DuckDB query for each, written by hand.

The queries read silver and reference tables, and one another, in this order: `gold.x` is what the query above
gives, never the engine's table. When a row is late, and when a window is over, is as docs/time.md has it.

The variable `ended` is true after `run --once --close`, `now` is what `reference.clock` holds.
"""

from __future__ import annotations

# Metres from a place to another, on a plane as wide as the town of the first.
METRES = """
    CREATE MACRO metres(lat, lon, other_lat, other_lon) AS
    sqrt(pow((lat - other_lat) * 111320, 2) + pow((lon - other_lon) * 111320 * cos(radians(lat)), 2))"""

# What several queries read. `reached`: the greatest event time of a row's partition, up to the row.
HELPERS = {
    "readings": """
        SELECT *, time_bucket(INTERVAL 5 MINUTES, event_time) AS window_start,
               window_start + INTERVAL 5 MINUTES AS window_end,
               max(event_time) OVER (PARTITION BY _source.partition ORDER BY _source."offset") AS reached
        FROM silver.cpu_metrics""",
    "readings_on_time": """
        SELECT window_start, window_end, hostname, cpu, avg(usage) AS avg_usage, max(usage) AS max_usage,
               getvariable('ended') OR window_end + INTERVAL 10 SECONDS <= (
                   SELECT min(come) FROM (
                       SELECT max(event_time) AS come FROM readings GROUP BY _source.partition)) AS over
        FROM readings WHERE reached < window_end + INTERVAL 10 SECONDS
        GROUP BY ALL""",
    "views": """
        SELECT *, max(event_time) OVER (PARTITION BY _source.partition ORDER BY _source."offset") AS reached
        FROM silver.page_views""",
    "views_of_windows": """
        SELECT *, window_start + INTERVAL 1 MINUTE AS window_end,
               reached >= window_end + INTERVAL 15 SECONDS + INTERVAL 1 MINUTE AS late
        FROM (SELECT *, time_bucket(INTERVAL 30 SECONDS, event_time) - unnest([INTERVAL 0 SECONDS,
                        INTERVAL 30 SECONDS]) AS window_start FROM views)""",
    "sessions": """
        WITH on_time AS (
            SELECT *, lag(event_time) OVER of_user AS before FROM views
            WHERE reached <= event_time + INTERVAL 15 SECONDS
            WINDOW of_user AS (PARTITION BY user_id ORDER BY event_time)
        ), numbered AS (
            SELECT *, count(*) FILTER (before IS NULL OR event_time > before + INTERVAL 5 MINUTES)
                      OVER (PARTITION BY user_id ORDER BY event_time) AS session
            FROM on_time
        )
        SELECT user_id, min(event_time) AS session_start,
               max(event_time) + INTERVAL 5 MINUTES AS session_end, count(*) AS views,
               first(page ORDER BY event_time, page) AS first_page,
               last(page ORDER BY event_time, page) AS last_page,
               getvariable('ended') OR session_end + INTERVAL 15 SECONDS < (
                   SELECT min(come) FROM (
                       SELECT max(event_time) AS come FROM views GROUP BY _source.partition)) AS over
        FROM numbered GROUP BY user_id, session""",
    "reports": """
        SELECT *, max(event_time) OVER (PARTITION BY _source.partition ORDER BY _source."offset") AS reached
        FROM silver.bus_positions""",
    "reports_on_time": """
        WITH low AS (SELECT min(come) AS low FROM (
                         SELECT max(event_time) AS come FROM reports GROUP BY _source.partition))
        SELECT reports.*, lead(event_time) OVER (PARTITION BY bus_id ORDER BY event_time) AS next,
               event_time + INTERVAL 2 MINUTES AS patient_until,
               getvariable('ended') OR event_time + INTERVAL 30 SECONDS < low AS taken,
               CASE WHEN getvariable('ended') THEN patient_until <= (SELECT max(event_time) FROM reports)
                    ELSE patient_until + INTERVAL 30 SECONDS < low END
               AND (next IS NULL OR next > patient_until) AS silent
        FROM reports, low WHERE reached <= event_time + INTERVAL 30 SECONDS""",
    "legs": """
        SELECT *, max(event_time) OVER (PARTITION BY _stream, _source.partition ORDER BY _source."offset")
               AS reached
        FROM (SELECT 'silver.debit_legs' AS _stream, * FROM silver.debit_legs UNION ALL BY NAME
              SELECT 'silver.credit_legs' AS _stream, * FROM silver.credit_legs)""",
    "legs_on_time": """
        WITH low AS (SELECT min(come) AS low FROM (
                         SELECT max(event_time) AS come FROM legs GROUP BY _stream, _source.partition))
        SELECT legs.*, getvariable('ended') OR
               event_time + INTERVAL 10 MINUTES + INTERVAL 30 SECONDS < low AS over
        FROM legs, low WHERE reached <= event_time + INTERVAL 30 SECONDS""",
    "pairs": """
        SELECT d.transfer_id, d.amount, d.transaction_id AS debit_id, d.account_id AS debit_account,
               d.event_time AS debited_at, c.transaction_id AS credit_id, c.account_id AS credit_account,
               c.event_time AS credited_at, true AS _matched
        FROM legs_on_time d JOIN legs_on_time c USING (transfer_id)
        WHERE d._stream = 'silver.debit_legs' AND c._stream = 'silver.credit_legs'
              AND abs(epoch_ms(d.event_time) - epoch_ms(c.event_time)) <= 600000""",
    "single": "SELECT * FROM legs_on_time ANTI JOIN pairs USING (transfer_id)",
}

TABLES = {
    "gold.cpu_usage_5m": """
        SELECT window_start, window_end, hostname, cpu, avg(usage) AS avg_usage, max(usage) AS max_usage
        FROM readings GROUP BY ALL""",
    "gold.cpu_usage_5m_final": "SELECT * EXCLUDE (over) FROM readings_on_time WHERE over",
    "gold.cpu_usage_5m_final__state": "SELECT * EXCLUDE (over) FROM readings_on_time WHERE NOT over",
    "gold.cpu_usage_5m_final_late": """
        SELECT struct_pack("start" := window_start, "end" := window_end) AS window,
               * EXCLUDE (window_start, window_end, reached), reached - INTERVAL 10 SECONDS AS _watermark,
               (epoch_us(_watermark) - epoch_us(event_time)) / 1e6 AS _lateness
        FROM readings WHERE reached >= window_end + INTERVAL 10 SECONDS""",
    "gold.cpu_hot_5m": """
        SELECT window_start, window_end, hostname, cpu, site, avg_usage, alert_threshold,
               avg_usage - alert_threshold AS above
        FROM gold.cpu_usage_5m_final JOIN reference.hosts USING (hostname)
        WHERE avg_usage > alert_threshold""",
    "gold.item_sales": """
        SELECT item_id, sum(quantity) AS quantity, sum(amount) AS amount, count(*) AS purchases
        FROM silver.purchases GROUP BY item_id""",
    "gold.item_sales_1h": """
        SELECT date_trunc('hour', event_time) AS window_start,
               window_start + INTERVAL 1 HOUR AS window_end, item_id,
               sum(quantity) AS quantity, sum(amount) AS amount, count(*) AS purchases
        FROM silver.purchases GROUP BY ALL""",
    "gold.top_sellers": """
        SELECT row_number() OVER (ORDER BY amount DESC, item_id) AS place, item_id, amount, quantity,
               purchases
        FROM gold.item_sales QUALIFY place <= 10""",
    "gold.top_sellers_1h": """
        SELECT window_start, item_id, amount, quantity,
               row_number() OVER (PARTITION BY window_start ORDER BY amount DESC, item_id) AS place
        FROM gold.item_sales_1h QUALIFY place <= 3""",
    "gold.lift_ride_counts": """
        SELECT window_start, window_start + INTERVAL 10 MINUTES AS window_end, resort_id, lift_id,
               count(*) AS rides
        FROM (SELECT *, time_bucket(INTERVAL 5 MINUTES, event_time) - unnest([INTERVAL 0 MINUTES,
                        INTERVAL 5 MINUTES]) AS window_start FROM silver.lift_rides)
        GROUP BY ALL""",
    "gold.lift_rides_10m": """
        SELECT now.*, coalesce(earlier.rides, 0) AS rides_before,
               ['decreasing', 'stable', 'increasing'][2 + sign(now.rides - rides_before)] AS trend
        FROM gold.lift_ride_counts now LEFT JOIN (
            SELECT * REPLACE (window_start + INTERVAL 5 MINUTES AS window_start) FROM gold.lift_ride_counts
        ) earlier USING (window_start, resort_id, lift_id)""",
    "gold.page_views_1m": """
        SELECT window_start, window_end, page, count(*) AS views
        FROM views_of_windows WHERE NOT late GROUP BY ALL""",
    "gold.page_views_1m_late": """
        SELECT struct_pack("start" := window_start, "end" := window_end) AS window,
               * EXCLUDE (window_start, window_end, reached, late),
               reached - INTERVAL 15 SECONDS - INTERVAL 1 MINUTE AS _watermark,
               (epoch_us(_watermark) - epoch_us(event_time)) / 1e6 AS _lateness
        FROM views_of_windows WHERE late""",
    "gold.web_sessions": "SELECT * EXCLUDE (over) FROM sessions WHERE over",
    "gold.web_sessions__state": "SELECT * EXCLUDE (over) FROM sessions WHERE NOT over",
    "gold.web_sessions_late": """
        SELECT struct_pack("start" := event_time, "end" := event_time + INTERVAL 5 MINUTES) AS session_window,
               * EXCLUDE (reached), reached - INTERVAL 15 SECONDS AS _watermark,
               (epoch_us(_watermark) - epoch_us(event_time)) / 1e6 AS _lateness
        FROM views WHERE reached > event_time + INTERVAL 15 SECONDS""",
    "gold.bus_reports": """
        SELECT bus_id, count(*) AS reports,
               list(struct_pack(reported_at := event_time, route_id, lat, lon) ORDER BY event_time DESC)[1:2]
                   AS latest
        FROM silver.bus_positions GROUP BY bus_id""",
    "gold.bus_positions": """
        WITH reports AS (
            SELECT *, lead(struct_pack(lat, lon, event_time)) OVER of_bus AS before,
                   row_number() OVER of_bus AS nth
            FROM silver.bus_positions WINDOW of_bus AS (PARTITION BY bus_id ORDER BY event_time DESC)
        ), buses AS (
            SELECT *, 3600 * metres(lat, lon, before.lat, before.lon)
                      / nullif(epoch_ms(event_time) - epoch_ms(before.event_time), 0) AS speed
            FROM reports WHERE nth = 1
        ), legs AS (
            SELECT stops.*, ahead.stop AS next_stop, ahead.lat AS next_lat, ahead.lon AS next_lon
            FROM reference.stops JOIN reference.stops ahead ON ahead.route_id = stops.route_id
             AND ahead.place = stops.place % (SELECT count(*) FROM reference.stops s
                                              WHERE s.route_id = stops.route_id) + 1
        )
        SELECT bus_id, buses.route_id, buses.lat, buses.lon, event_time AS reported_at, speed, next_stop,
               make_timestamptz(1000 * trunc(epoch_ms(event_time) + 3600 * metres(
                   buses.lat, buses.lon, next_lat, next_lon) / nullif(speed, 0))::BIGINT) AS arrival
        FROM buses JOIN legs USING (route_id)
        QUALIFY row_number() OVER (
            PARTITION BY bus_id
            ORDER BY metres(buses.lat, buses.lon, legs.lat, legs.lon)
                     + metres(buses.lat, buses.lon, next_lat, next_lon)
                     - metres(legs.lat, legs.lon, next_lat, next_lon), place) = 1""",
    "gold.bus_silences": """
        SELECT bus_id, event_time AS silent_since, route_id, lat, lon FROM reports_on_time WHERE silent""",
    "gold.bus_silences__state": """
        WITH last AS (
            SELECT * FROM reports_on_time WHERE taken
            QUALIFY row_number() OVER (PARTITION BY bus_id ORDER BY event_time DESC) = 1 AND NOT silent
        )
        SELECT bus_id, struct_pack(route_id, lat, lon) AS _state, patient_until AS _timer,
               event_time AS _touched, patient_until AS _due
        FROM last""",
    "gold.bus_silences_late": """
        SELECT * EXCLUDE (reached), reached - INTERVAL 30 SECONDS AS _watermark,
               (epoch_us(_watermark) - epoch_us(event_time)) / 1e6 AS _lateness
        FROM reports WHERE reached > event_time + INTERVAL 30 SECONDS""",
    "gold.silent_buses": """
        SELECT bus_id, max(event_time) AS reported_at, arg_max(route_id, event_time) AS route_id,
               arg_max(lat, event_time) AS lat, arg_max(lon, event_time) AS lon
        FROM silver.bus_positions GROUP BY bus_id
        HAVING max(event_time) < getvariable('now') - INTERVAL 2 MINUTES""",
    "gold.account_balances": """
        SELECT account_id, currency, sum(CASE type WHEN 'DEBIT' THEN -amount ELSE amount END) AS balance,
               count(*) AS transactions
        FROM silver.transaction_events GROUP BY ALL""",
    "gold.account_balances_1h": """
        SELECT time_bucket(INTERVAL 1 HOUR, event_time) AS window_start,
               window_start + INTERVAL 1 HOUR AS window_end, account_id, currency,
               sum(CASE type WHEN 'DEBIT' THEN -amount ELSE amount END) AS change, count(*) AS transactions
        FROM silver.transaction_events GROUP BY ALL""",
    "gold.customer_spend": """
        SELECT time_bucket(INTERVAL 1 DAY, event_time) AS day, day + to_hours(hour) AS until, customer_id,
               currency, sum(amount) AS spent, count(*) AS debits
        FROM silver.transaction_events, range(1, 25) AS hours(hour)
        WHERE type = 'DEBIT' AND time_bucket(INTERVAL 1 DAY, event_time) + to_hours(hour) > event_time
        GROUP BY ALL""",
    "gold.segment_spend": """
        SELECT segment, category, currency, sum(amount) AS spent, count(*) AS debits
        FROM silver.transaction_events t LEFT JOIN silver.customers_history c
             ON c.customer_id = t.customer_id AND c.__START_AT <= t.event_time
                AND (c.__END_AT IS NULL OR c.__END_AT > t.event_time)
        WHERE type = 'DEBIT' GROUP BY ALL""",
    "gold.debits": """
        SELECT * EXCLUDE (type, transfer_id) FROM silver.settled_transactions WHERE type = 'DEBIT'""",
    "gold.credits": """
        SELECT * EXCLUDE (type, transfer_id) FROM silver.settled_transactions WHERE type = 'CREDIT'""",
    "gold.movements": """
        SELECT transaction_id, account_id, CASE type WHEN 'DEBIT' THEN -amount ELSE amount END AS amount,
               currency, event_time
        FROM silver.settled_transactions""",
    "gold.transfers": """
        FROM pairs UNION ALL BY NAME
        SELECT transfer_id, amount, transaction_id AS debit_id, account_id AS debit_account,
               event_time AS debited_at, false AS _matched
        FROM single WHERE over AND _stream = 'silver.debit_legs' UNION ALL BY NAME
        SELECT transfer_id, amount, transaction_id AS credit_id, account_id AS credit_account,
               event_time AS credited_at, false AS _matched
        FROM single WHERE over AND _stream = 'silver.credit_legs'""",
    "gold.transfers_late": """
        SELECT * EXCLUDE (reached), reached - INTERVAL 30 SECONDS AS _watermark,
               (epoch_us(_watermark) - epoch_us(event_time)) / 1e6 AS _lateness
        FROM legs WHERE reached > event_time + INTERVAL 30 SECONDS""",
}
