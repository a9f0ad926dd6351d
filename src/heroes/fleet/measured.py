"""Measured speeds as quantiles, made by tools/measured_fleets.py; no row of the sources is kept.

Links: Measurement Lab (M-Lab), NDT speed tests in North America, June 2022; download and upload in Mb/s,
31,507 pairs. Phones: AI-Benchmark, CPU floating-point score of 333 phones, relative to the median phone.
Quantiles at 0, 1/32 .. 1. `LINK_CORRELATION` is that of the normal scores of download and upload.
"""

# fmt: off
DOWNLOAD_MBPS = (
    0.4946, 1.434, 3.071, 4.938, 6.544, 8.457, 10.43, 12.35, 13.99, 15.62, 17.43,
    19.22, 21.18, 23.01, 24.84, 26.57, 28.58, 30.62, 32.89, 35.62, 38.81, 41.87,
    45.17, 48.66, 52.66, 57.31, 64.1, 81.22, 93.88, 120.9, 178.4, 248.7, 413.7,
)
UPLOAD_MBPS = (
    0.1128, 0.2109, 0.2109, 0.2831, 0.5363, 1.507, 2.841, 4.392, 5.69, 7.139, 8.84,
    10.25, 11.19, 12.16, 14.01, 15.64, 17.13, 18.59, 20.13, 21.67, 23.25, 25.2,
    27.8, 31.09, 35.2, 39.23, 43.75, 48.59, 53.48, 56.69, 59.72, 93.16, 217.4,
)
PHONE_SPEED = (
    0.06783, 0.1329, 0.1499, 0.1742, 0.1835, 0.2113, 0.2461, 0.2902, 0.3669, 0.4141, 0.5102,
    0.7053, 0.8346, 0.862, 0.9178, 0.9629, 1, 1.024, 1.067, 1.089, 1.152, 1.259,
    1.299, 1.341, 1.391, 1.458, 1.775, 1.959, 2.046, 2.238, 2.334, 2.46, 2.784,
)
LINK_CORRELATION = 0.313
