"""What everything runs on: Java, the JVM libraries, Spark sessions, fail points for tests."""
