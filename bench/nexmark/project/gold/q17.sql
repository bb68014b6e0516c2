CREATE STREAMING TABLE gold.q17
COMMENT 'What was bid on each auction on each day (UTC)'
AS SELECT auction, date(date_time) AS day,
          count(*) AS bids,
          count(*) FILTER (WHERE price < 10000) AS low,
          count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
          count(*) FILTER (WHERE price >= 1000000) AS high,
          min(price) AS least, max(price) AS most, avg(price) AS average, sum(price) AS total
FROM STREAM silver.bid
GROUP BY auction, date(date_time)
