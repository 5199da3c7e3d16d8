"""The demo: a minute live, then the New York flights of 2013 under the virtual clock, checked in pandas."""
