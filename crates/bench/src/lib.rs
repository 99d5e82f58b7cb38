//! Load, latency histograms and reports
