"""The mapper as a Structured Streaming query, for clusters that have Spark.

planner's process   planning    heads and ends to works            (on the driver's machine)
executors           LaneWork    read, decode, map                  (mars.adapters.spark)
our process         taking      append by compare-and-set          (a thread of Spark's)
                    watching    idle leases, the member's report   (main thread)
"""
