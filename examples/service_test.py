#!/usr/bin/env python3
"""Tests an HTTP service over a float index whose rows find themselves.

    python3 examples/service_test.py INDEX COMMAND...

COMMAND gets the arguments "-address 127.0.0.1:0 INDEX" and prints "... listening on HOST:PORT". It is asked
what clients ask, wrongly and rightly, by several at once, and is ended by SIGTERM while it answers.
"""

import concurrent.futures
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

checks = failed = 0


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print(f"service_test: {what}", file=sys.stderr)


def ask(address, path, body=None):
    """Status and text of an answer."""
    data = body.encode() if isinstance(body, str) else body
    try:
        with urllib.request.urlopen(f"http://{address}{path}", data, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def main():
    index, command = sys.argv[1], sys.argv[2:]
    server = subprocess.Popen([*command, "-address", "127.0.0.1:0", index], stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        found = re.search(r"(\d+) rows of (\d+); listening on (\S+)", line)
        if not found:
            print(f"service_test: the first line is {line!r}", file=sys.stderr)
            return 1
        rows, dim, address = int(found[1]), int(found[2]), found[3]
        check(ask(address, "/healthz") == (200, "ok\n"), "healthz")

        vector = [0.25] * dim
        def search(**query):
            return ask(address, "/search", json.dumps({"vector": vector, **query}))
        status, text = search(k=5)
        answer = json.loads(text) if status == 200 else {}
        check(len(set(answer.get("ids", []))) == 5 and max(answer["ids"]) < rows, f"ids: {status} {text}")
        check(answer.get("distances") == sorted(answer.get("distances", [0])), f"distances: {text}")
        status, text = search()
        check(status == 200 and len(json.loads(text)["ids"]) == 10, f"the default k: {status} {text}")
        check(search(k=5, recall=0.99)[0] == 200, "a recall")

        wrong = ["", "{", "[]", '{"vector": 5}', '{"vector": []}', json.dumps({"vector": vector[1:]}),
                 json.dumps({"vector": vector, "k": -1}), json.dumps({"vector": vector, "k": 10**9}),
                 json.dumps({"vector": vector, "recall": 7}), '{"vector": [' + "1," * (1 << 20) + "1]}"]
        for body in wrong:
            try:
                status, text = ask(address, "/search", body)
            except (urllib.error.URLError, ConnectionError):
                check(len(body) > 1 << 20, f"{body[:40]!r}: the connection breaks")
                continue
            check(status in (400, 413) and text.strip(), f"{body[:40]!r}: {status} {text}")
        check(ask(address, "/nothing")[0] == 404, "no such page")
        check(ask(address, "/search")[0] in (404, 405), "a search by GET")

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            statuses = list(pool.map(lambda i: search(k=1 + i % 20)[0], range(200)))
        check(statuses == [200] * 200, "200 searches at once")

        status, text = ask(address, "/metrics")
        count = dict(re.findall(r'gannet_searches_total\{outcome="(\w+)"\} (\d+)', text))
        check(count.get("answered") == "203", f"answered: {count}")
        check(int(count.get("refused", 0)) >= 8 and count.get("failed") == "0", f"refused, failed: {count}")
        check(re.search(rf"^gannet_rows {rows}$", text, re.M), "rows in the metrics")
        check(re.search(r"^gannet_distances_total [1-9]", text, re.M), "distances in the metrics")

        # What is being answered when the signal comes is answered.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(search, k=100, recall=0.999) for _ in range(8)]
            answers[0].result()
            server.send_signal(signal.SIGTERM)
            outcomes = []
            for answer in answers:
                try:
                    outcomes.append(answer.result()[0])
                except (urllib.error.URLError, ConnectionError):
                    outcomes.append(0)  # came after the signal
        check(set(outcomes) <= {200, 0} and outcomes[0] == 200, f"at the end: {outcomes}")
        check(server.wait(60) == 0, f"the service ends with {server.returncode}")
        try:
            ask(address, "/healthz")
            check(False, "it still listens")
        except (urllib.error.URLError, ConnectionError):
            pass
    finally:
        server.kill()
        server.wait()
    print(f"service_test: {checks} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
