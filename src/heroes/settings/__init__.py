"""Settings: how a run is described (`config`), every key and default (`sections`), ready-made experiments
(`recipes`).
"""
