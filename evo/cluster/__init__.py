"""Ray: a run's populations and evaluation workers as actors. Nothing outside this package imports ray.

Actors are plain objects behind `connection.Host`. The driver makes each of them anew when it dies: a worker starts
empty, a population is rebuilt from the store. Ray itself restarts nothing, so that the driver never talks to an actor
that has forgotten something. The store is the driver's own, as without Ray: it commits in a thread anyway.
"""
