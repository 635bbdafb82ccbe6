"""Prints the sums 'passed failed skipped' of JUnit files, as GoogleTest and pytest write them."""

import sys
import xml.etree.ElementTree as ElementTree


def count(path):
    root = ElementTree.parse(path).getroot()
    passed = failed = skipped = 0
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    print(*map(sum, zip(*map(count, sys.argv[1:]))))
