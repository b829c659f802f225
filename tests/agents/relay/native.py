"""A stand-in for an agent that was made for a relay: it reads the channel itself, by what its environment says."""

import os
import time

import httpx

TAG = "[a2a:"


def main() -> None:
    where, channel = os.environ["RELAY_BASE_URL"] + "/channels/messages", os.environ["RELAY_CHANNEL"]
    key = {"Authorization": f"Bearer {os.environ['RELAY_API_KEY']}"}
    seen: set[int] = set()
    with httpx.Client(headers=key) as http:
        while True:
            for message in http.get(where, params={"channel": channel, "limit": 20}).json():
                text = message["text"]
                if message["id"] in seen or TAG not in text or message["from"] == os.environ["RELAY_AGENT_NAME"]:
                    continue
                seen.add(message["id"])
                tag = text.rpartition(TAG)[2].rstrip("] \n")
                http.post(where, json={"channel": channel, "text": f"DONE: [a2a:{tag}] natively {text.split()[0]}"})
            time.sleep(0.05)


if __name__ == "__main__":
    main()
