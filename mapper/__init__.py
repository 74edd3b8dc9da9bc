"""The live mapper: reads Kafka, groups partially, puts partials into the store."""

from mars.process.memory import keep_small

keep_small()
