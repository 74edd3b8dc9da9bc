SELECT sip, type, timestamp, count(*)
FROM flows
GROUP BY sip, type, timestamp
WINDOWING 60 s
