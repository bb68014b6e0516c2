"""What everything runs on: Java, the JVM libraries, the one JVM, Spark sessions, fail points for tests.

It knows neither projects nor tables; what it needs of a configuration it is given.
"""
