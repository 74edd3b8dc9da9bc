"""The formats of messages: json, ndjson, csv and arrow."""
