#!/usr/bin/env python3
"""Writes site/downloads/numbers.txt: each number up to 5000 in words, and what it is made of."""

from pathlib import Path

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
LAST = 5000


def words(number):
    if number < 20:
        return SMALL[number]
    if number < 100:
        rest = number % 10
        return TENS[number // 10] + (f"-{SMALL[rest]}" if rest else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    rest = number % size
    joint = " and " if 0 < rest < 100 else " "
    return f"{words(number // size)} {name}" + (joint + words(rest) if rest else "")


def factors(number):
    divisor, found = 2, []
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found + [number] if number > 1 else found


def line(number):
    made = factors(number)
    made = "prime" if len(made) == 1 else " × ".join(map(str, made)) or "unit"
    return f"{number:>5}  {words(number):<44}  {made}\n"


if __name__ == "__main__":
    path = Path(__file__).parent / "site" / "downloads" / "numbers.txt"
    path.write_text("".join(map(line, range(1, LAST + 1))), encoding="utf-8")
