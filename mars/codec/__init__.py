"""Bytes to columns and back.

messages      the messages of a stream -> `Decoded` columns (json, ndjson, csv, arrow)
decoded       what has been decoded: columns, what is wrong with which row, slices of it
columns       texts and numbers -> columns of the declared types; timestamps
states        frames of states <-> Arrow IPC
entry         a log entry <-> header and body
"""
