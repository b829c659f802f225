"""Talks to a person at a terminal: colours, a progress bar, and a question that it waits for the answer to."""

import os
import sys

assert os.isatty(0), "this is for people"
print("\x1b]0;a title\x07\x1b[1;32mready\x1b[0m")
prompt = input()
for percent in (10, 50, 100):
    print(f"\r{percent}%", end="", flush=True)
print()
if "--twice" in sys.argv:
    print(f"first {input('What first? ')}")
answer = input(f"\x1b[33mDo {prompt}?\x1b[0m [y/N] ")
print(f"{prompt}: {answer}, pid {os.getpid()}")
