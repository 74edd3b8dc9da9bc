"""The live mapper: reads Kafka, groups partially, puts partials into the store."""
