#!/usr/bin/env python3
"""Runs one of DMTF's validators without its report as a spreadsheet: validator.py PACKAGE ARGUMENTS.

Nobody reads that here, and making it takes five times as long as all requests and comparisons: the
results of a box are some 26,000 rows, and each cell of them has a style of its own.
"""

import importlib
import sys


def main():
    package = sys.argv.pop(1)
    report = importlib.import_module(f"{package}.report")
    assert callable(report.xlsx_report), f"{package} makes its spreadsheet elsewhere now"
    report.xlsx_report = lambda *_, **__: "none"
    return importlib.import_module(f"{package}.console_scripts").main()


if __name__ == "__main__":
    sys.exit(main())
