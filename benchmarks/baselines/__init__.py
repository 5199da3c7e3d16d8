"""What delayline is compared with: two plain applications on the same tables, session and clock.

`rowwise` keeps one blob per subscription in the streaming state and works row by row; `polling` has no tracker and asks
the table what is due. Both are started as `pipeline.service.run.start` starts our stages, and pass the same stream
tests of delivery (`tests/stream/test_baselines.py`). They promise nothing across a crash. Frozen: every later claim of
speed is a ratio to these, so they are not to be made faster or slower.
"""
