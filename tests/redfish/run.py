#!/usr/bin/env python3
"""Runs DMTF's checkers of Redfish services and clients of others against a target.

The target has five drives of five functions each, is under a small load, and functions are given
and taken while the checkers look. Another one, which goes by a state directory, is managed itself by
ansible and by Tacklebox' scripts: it listens elsewhere, loses its logs, and starts again. The environment names the program (EBOF) and the directory of the
checkers' virtual environment (EBOF_REDFISH_VENV). The last line is "N passed, M failed, K skipped".
"""

import base64
import glob
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHARED = os.path.join(os.path.dirname(ROOT), "shared", "redfish")
EBOF = os.environ.get("EBOF", os.path.join(ROOT, "target", "debug", "ebof"))
VENV = os.environ.get("EBOF_REDFISH_VENV", os.path.expanduser("~/.cache/ebof/redfish-venv"))
PASSWORD = "correct horse battery"
# The host of the load: one that is described is there between its connections, too, so that a
# checker that follows a link to it later finds it.
HOST = "nqn.2014-08.org.example:load"
DRIVES = 5
FUNCTIONS = 5

# A bundle of authorities that is named there would be used even where certificates are not checked.
for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
    os.environ.pop(variable, None)

passed, failed, skipped = [], [], []


def say(text):
    print(text, flush=True)


def verdict(name, ok, why=""):
    (passed if ok else failed).append(name)
    say(f"{'ok     ' if ok else 'FAILED '} {name}{': ' + why if why else ''}")


def skip(name, why):
    skipped.append(name)
    say(f"SKIPPED: {name}: {why}")


class Target:
    """A target that is served until the end of the block."""

    def __init__(self, directory):
        self.directory = directory

    def write(self, config):
        """Its configuration; the arguments that it is served with."""
        lines = ['[[ports]]\nname = "fabric0"\nlisten = "tcp://127.0.0.1:0"\n', f'[[hosts]]\nnqn = "{HOST}"\n']
        for number in range(DRIVES):
            lines.append(
                f'[[drives]]\nname = "d{number}"\nbacking = "mem:64Mi"\nfunctions = {FUNCTIONS}\n'
                f'[[subsystems]]\nnqn = "nqn.2014-08.org.example:box:d{number}"\nallow_any_host = true\n'
                f'drive = "d{number}"\nports = ["fabric0"]\n'
            )
        with open(config, "w", encoding="utf-8") as file:
            file.write("".join(lines))
        return ["--config", config, "--https", "127.0.0.1:0"]

    def start(self):
        arguments = self.write(os.path.join(self.directory, "box.toml"))
        environment = dict(os.environ, STATE_DIRECTORY=os.path.join(self.directory, "state"))
        self.control = os.path.join(self.directory, "control.sock")
        command = [EBOF, "-o", "json", "serve", *arguments, "--control", self.control]
        self.log = open(os.path.join(self.directory, "target.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        told = json.loads(self.process.stdout.readline())
        self.url = told["https"]
        self.fabric = told["listening"][0]
        with open(told["initial_password"], encoding="utf-8") as file:
            first = file.read().splitlines()[-1]
        self.call("PATCH", "/redfish/v1/AccountService/Accounts/1", {"Password": PASSWORD}, password=first)

    def __enter__(self):
        self.start()
        for number in range(DRIVES):
            new = ["add", "namespace", f"d{number}", "16Mi", "--attach", f"d{number}/vf2"]
            self.verb(*new)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=30)

    def verb(self, *words):
        subprocess.run([EBOF, "target", "--control", self.control, *words], check=True, stdout=subprocess.DEVNULL)

    def slow_commands(self):
        """Reads through a function that may do two operations in a second."""
        self.verb("assign", "d0/vf2", "--port", "fabric0")
        self.verb("limit", "d0/vf2", "--iops", "2")
        endpoint = self.call("GET", "/redfish/v1/Fabrics/NVMeoF/Endpoints/d0-vf2")
        nqn = next(one["DurableName"] for one in endpoint["Identifiers"] if one["DurableNameFormat"] == "NQN")
        bench = [EBOF, "bench", f"nvme+{self.fabric}/{nqn}/1", "--rw", "randread", "--iodepth", "4", "--runtime", "1"]
        subprocess.run(bench, check=True, stdout=subprocess.DEVNULL)
        self.verb("limit", "d0/vf2", "--iops", "none")
        entries = self.call("GET", "/redfish/v1/Managers/ebof/LogServices/SlowCommands/Entries")
        verdict("slow commands are told", entries["Members@odata.count"] > 0)

    def subscriptions(self):
        """Of both kinds, to a port where nobody listens."""
        for kind in ("Event", "MetricReport"):
            self.call("POST", "/redfish/v1/EventService/Subscriptions", {
                "Destination": "http://127.0.0.1:9/", "Protocol": "Redfish", "EventFormatType": kind,
                "DeliveryRetryPolicy": "RetryForever",
            })

    def keys(self):
        """One of each kind, of a host that nobody is."""
        secrets = "/redfish/v1/KeyService/NVMeoFSecrets"
        for verb, more in (("gen-dhchap-key", {}), ("gen-dhchap-key", {"HostKeyId": ""}), ("gen-tls-key", {})):
            text = subprocess.run([EBOF, verb], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
            own = {"NQN": "nqn.2014-08.org.example:keyed", **more}
            self.call("POST", secrets, {"KeyString": text, "KeyType": "NVMeoF", "NVMeoF": own})
        verdict("keys are added", self.call("GET", secrets)["Members@odata.count"] == 3)

    def call(self, method, path, body=None, password=PASSWORD):
        """One request; its answer as JSON."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        token = base64.b64encode(f"admin:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
        with urllib.request.urlopen(request, context=context, timeout=20) as answer:
            text = answer.read()
            return json.loads(text) if text else None


def free_port():
    """A port where nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Service(Target):
    """A target with a namespace in a file, whose configuration says where it is managed."""

    def write(self, config):
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f'[target]\nhttps = "127.0.0.1:{free_port()}"\n[[ports]]\nname = "a"\nlisten = "tcp://127.0.0.1:0"\n'
                f'[[drives]]\nname = "d0"\nbacking = "{self.directory}/d0.img"\nsize = "64Mi"\nfunctions = 1\n'
                '[[subsystems]]\nnqn = "nqn.2014-08.org.example:d0"\nallow_any_host = true\ndrive = "d0"\nports = ["a"]\n'
                '[[subsystems]]\nnqn = "nqn.2014-08.org.example:plain"\nallow_any_host = true\nports = ["a"]\n'
                f'namespaces = ["{self.directory}/plain.img:16Mi"]\n'
            )
        return ["--import", config, "--state", os.path.join(self.directory, "state")]

    def __enter__(self):
        self.start()
        return self

    def last_reset(self):
        return self.call("GET", "/redfish/v1/Managers/ebof")["LastResetTime"]

    def comes_back(self, before):
        """Waits until it was started again, as the same process."""
        for _ in range(200):
            try:
                if self.last_reset() != before:
                    return self.process.poll() is None
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.1)
        return False


class Load:
    """Functions are given and taken, and a host reads, as long as the block lasts."""

    def __init__(self, target):
        self.target, self.over = target, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.changes = 0

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def verb(self, *words):
        command = [EBOF, "target", "--control", self.target.control, *words]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode

    def run(self):
        while not self.over.is_set():
            self.changes += self.verb("assign", "d4/vf1", "--port", "fabric0") == 0
            uri = f"nvme+{self.target.fabric}/nqn.2014-08.org.example:box:d0"
            look = [EBOF, "id-ctrl", uri, "--hostnqn", HOST]
            subprocess.run(look, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            self.changes += self.verb("assign", "d4/vf1", "--none") == 0
            self.over.wait(0.5)


def tool(name, *arguments, limit=240):
    """Runs a program of the virtual environment; its status and output."""
    command = [os.path.join(VENV, "bin", name), *arguments]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, f"it took longer than {limit} s"
    return done.returncode, done.stdout


def validator(package, *arguments):
    """Runs a validator without its spreadsheet; its output. The limit of `tool` ends only one that hangs."""
    began = time.monotonic()
    _, text = tool("python3", os.path.join(HERE, "validator.py"), package, *arguments)
    say(f"   {package}: {time.monotonic() - began:.0f} s")
    return text


def counts(text):
    """What passed, was warned of and failed, in the table at the end of an output."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = re.findall(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|", plain)
    return list(map(int, rows[-1])) if rows else None


def reported(directory, pattern):
    """The lines of a log of validators that say what failed."""
    lines = []
    for path in sorted(glob.glob(os.path.join(directory, "**", pattern), recursive=True)):
        with open(path, encoding="utf-8", errors="replace") as file:
            lines += [line.strip() for line in file if re.search(r"\bFAIL\b", line) and "PASS" not in line]
    return lines


def service_validator(target, directory):
    archive = os.path.join(SHARED, "csdl-2025.4.tgz")
    if not os.path.exists(archive):
        return skip("service validator", "DMTF's schemas are not beside the project")
    schemas, logs = os.path.join(directory, "schemas"), os.path.join(directory, "service")
    os.makedirs(schemas)
    subprocess.run(["tar", "-xzf", archive, "-C", schemas, "--strip-components=1"], check=True)
    for path in glob.glob(os.path.join(ROOT, "crates", "redfish", "schemas", "*.xml")):
        shutil.copy(path, schemas)
    text = validator(
        "redfish_service_validator", "--user", "admin", "--password", PASSWORD, "--rhost", target.url, "--authtype", "Session",
        "--logdir", logs, "--schema_directory", schemas, "--skipschema",
    )
    numbers = counts(text)
    if not numbers:
        return verdict("service validator", False, text[-2000:])
    good, warnings, bad = numbers
    for line in reported(logs, "*Debug*.log")[:40]:
        say(f"   {line}")
    verdict("service validator", bad == 0 and good > 1000, f"{good} passed, {warnings} warnings, {bad} failed")


def protocol_validator(target, directory):
    logs = os.path.join(directory, "protocol")
    _, text = tool(
        "rf_protocol_validator", "--user", "admin", "--password", PASSWORD, "--rhost", target.url, "--no-cert-check",
        "--report-dir", logs, "--report-type", "tsv",
    )
    numbers = re.search(r"PASS: (\d+), WARN: (\d+), FAIL: (\d+)", text)
    if not numbers:
        return verdict("protocol validator", False, text[-2000:])
    good, warnings, bad = map(int, numbers.groups())
    for path in glob.glob(os.path.join(logs, "*.tsv")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if "\tFAIL\t" in line or "\tWARN\t" in line:
                    say(f"   {line.strip()[:600]}")
    verdict("protocol validator", bad == 0 and good > 100, f"{good} passed, {warnings} warnings, {bad} failed")


def interop_validator(target, directory, profile):
    name = f"interop validator, {os.path.basename(profile)}"
    if not os.path.exists(profile):
        return skip(name, "the profile is not beside the project")
    logs = os.path.join(directory, os.path.basename(profile))
    text = validator(
        "redfish_interop_validator", "--user", "admin", "--password", PASSWORD, "--rhost", target.url, "--authtype", "Session",
        "--logdir", logs, profile,
    )
    numbers = counts(text)
    if not numbers:
        return verdict(name, False, text[-2000:])
    good, warnings, bad = numbers
    for line in reported(logs, "*Debug*.log")[:40]:
        say(f"   {line}")
    verdict(name, bad == 0 and good > 0, f"{good} passed, {warnings} warnings, {bad} failed")


def use_cases(target, directory):
    logs = os.path.join(directory, "usecases")
    _, text = tool(
        "rf_use_case_checkers", "--user", "admin", "--password", PASSWORD, "--rhost", target.url, "--report-dir", logs,
        "--test-list", "AccountManagement", "QueryParameters",
    )
    numbers = counts(text)
    if not numbers:
        return verdict("use-case checkers", False, text[-2000:])
    good, warnings, bad = numbers
    for line in reported(logs, "*Debug*.log")[:40]:
        say(f"   {line}")
    verdict("use-case checkers", bad == 0 and good > 0, f"{good} passed, {warnings} warnings, {bad} failed")


def redfishtool(target):
    host = target.url.split("://", 1)[1]
    for words in (["Systems", "list"], ["Systems", "-F"], ["Chassis", "list"], ["Managers", "list"], ["AccountService", "Accounts", "list"], ["raw", "GET", "/redfish/v1/TaskService"]):
        status, text = tool("redfishtool", "-r", host, "-u", "admin", "-p", PASSWORD, "-S", "Always", *words)
        verdict(f"redfishtool {' '.join(words)}", status == 0, "" if status == 0 else text[-500:])


def sushy(target):
    status, text = tool("python3", os.path.join(HERE, "client.py"), target.url, "admin", PASSWORD)
    verdict("sushy", status == 0, text.strip()[-800:])


def ansible(service):
    collections = os.path.join(VENV, "ansible_collections")
    if not os.path.exists(collections):
        return skip("ansible", "its modules are not installed (scripts/packages.sh test)")
    before = service.last_reset()
    environment = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=VENV, ANSIBLE_NOCOLOR="1", ANSIBLE_LOCALHOST_WARNING="0")
    command = [
        os.path.join(VENV, "bin", "ansible-playbook"), "-i", "localhost,", os.path.join(HERE, "ansible.yml"),
        "-e", json.dumps({
            "baseuri": service.url.split("://", 1)[1], "password": PASSWORD, "http_port": free_port(),
            "ansible_python_interpreter": os.path.join(VENV, "bin", "python3"),
        }),
    ]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    verdict("ansible", done.returncode == 0, "" if done.returncode == 0 else done.stdout[-3000:])
    verdict("the service starts again", service.comes_back(before))


def tacklebox(service):
    """Scripts that begin at the system, and those that change the service."""
    common = ["-u", "admin", "-p", PASSWORD, "-r", service.url]
    for name, *words in (
        ("rf_sys_inventory.py",), ("rf_sensor_list.py",), ("rf_firmware_inventory.py",), ("rf_accounts.py",),
        ("rf_logs.py", "--log", "Events"), ("rf_logs.py", "--log", "Events", "--clear"), ("rf_manager_config.py", "info"),
        ("rf_manager_config.py", "reset", "--type", "GracefulRestart"),
    ):
        before = service.last_reset()
        status, text = tool(name, *common, *words)
        title = " ".join([name.removesuffix(".py"), *words])
        verdict(title, status == 0 and "Traceback" not in text, text.strip()[-500:] if status else "")
        if "reset" in words:
            verdict("the service starts again by Tacklebox", service.comes_back(before))


def trail(service):
    """What accounts did stays, whoever clears the log."""
    entries = service.call("GET", "/redfish/v1/Managers/ebof/LogServices/Events/Entries")["Members"]
    started = any(entry["MessageId"].endswith("TargetStarted") for entry in entries)
    verdict("the log tells of the start", started, "" if started else json.dumps(entries)[:2000])


def main():
    if not os.path.exists(os.path.join(VENV, "bin", "rf_service_validator")):
        skip("all", "the checkers are not installed (scripts/packages.sh test)")
    else:
        with tempfile.TemporaryDirectory() as directory, Target(directory) as target, Load(target) as load:
            began = time.monotonic()
            target.slow_commands()
            target.subscriptions()
            target.keys()
            service_validator(target, directory)
            protocol_validator(target, directory)
            interop_validator(target, directory, os.path.join(SHARED, "EbofBaseline.v0_1_0.json"))
            interop_validator(target, directory, os.path.join(HERE, "EbofProfile.v1_0_0.json"))
            use_cases(target, directory)
            redfishtool(target)
            sushy(target)
            say(f"functions were given and taken {load.changes} times in {time.monotonic() - began:.0f} s")
        with tempfile.TemporaryDirectory() as directory, Service(directory) as service:
            began = time.monotonic()
            ansible(service)
            tacklebox(service)
            trail(service)
            say(f"the service was managed in {time.monotonic() - began:.0f} s")
    for name in failed:
        say(f"FAILED  {name}")
    say(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
