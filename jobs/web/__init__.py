"""The page: what `pipeline.insight` and the client say of a warehouse, for a browser, and the actions that it offers.

HTML is made here, and a browser needs no script to use it. Nothing is asked of another host.
"""
