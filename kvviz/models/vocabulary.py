"""Text to ids and ids to bytes, straight from a model's vocabulary files."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kvviz.core.refusal import Refusal


def _byte_letters() -> dict[str, int]:
    """GPT-2 writes each byte of a token as one printable letter; this maps letters back to bytes.

    Printable Latin-1 letters stand for themselves, the other 68 bytes for U+0100 and on, in order
    (Radford et al. 2019, `bytes_to_unicode` in their encoder.py).
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_letters()
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """A tokenizer in which what a person typed is always text, never a control token.

    Safe to share between threads: truncation and padding are switched off once, and calls take a lock.
    """

    def __init__(self, folder: Path) -> None:
        if (folder / "tokenizer.json").is_file():
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        else:
            bpe = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
            self._tokenizer = Tokenizer(bpe)
            self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            self._tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "<|endoftext|>" in a prompt stays thirteen characters
        parts = json.loads(self._tokenizer.to_str())
        self._byte_level = '"ByteLevel"' in json.dumps([parts.get("pre_tokenizer"), parts.get("decoder")])
        self._added = {t["id"]: t["content"] for t in parts.get("added_tokens") or []}
        self._lock = threading.Lock()
        self._known: dict[int, bytes] = {}
        self.longest = max((len(t.encode()) for t in self._tokenizer.get_vocab()), default=1)  # bytes, at least

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Ids of the text, with the opening token the model's own vocabulary puts first, if it has one.

        Raises Refusal "bad_text" for half a surrogate pair, which is no character.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise Refusal("bad_text") from None
        with self._lock:
            return self._tokenizer.encode(text).ids

    def piece(self, token: int) -> bytes:
        """The exact bytes a token stands for. An id the vocabulary leaves out reads `<id>`."""
        if token not in self._known:
            self._known[token] = self._bytes_of(token)
        return self._known[token]

    def _bytes_of(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        with self._lock:
            written = self._tokenizer.id_to_token(token)
        if written is None:
            return f"<{token}>".encode()
        if self._byte_level:
            if all(c in _BYTE_OF for c in written):
                return bytes(_BYTE_OF[c] for c in written)
            return written.encode()
        if byte := _BYTE_TOKEN.fullmatch(written):
            return bytes([int(byte[1], 16)])
        return written.replace("▁", " ").encode()
