"""The content of key files: what is kept, what is refused, and that no key is shown."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from dataclasses import replace

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    KEY_FILE_VERSION,
    LOCK_NONCE_SIZE,
    LOCK_SALT_SIZE,
    MAX_KEY_FILE,
    MAX_KEY_NAME,
    MAX_NUMBER,
    MAX_PASSPHRASE,
    OLD_KEY_TIME,
    BadKey,
    BadKeyFile,
    BadRecord,
    IdentityError,
    KeyFile,
    KeyRecord,
    Lock,
    PassphraseNeeded,
    RotatedLately,
    SigningKey,
    identity_text,
    lock_key,
    parse_key_file,
    rotate_sealing_key,
    serialize_key_file,
    unlock_key,
)

SIGNING, SEALING, LATER = (bytes(range(at, at + 32)) for at in (0, 64, 128))
RECORD = KeyRecord(SIGNING, SEALING, 1_790_000_000_000, "relay in Oslo")
ROTATED = rotate_sealing_key(RECORD, LATER, 1_790_000_600_000)
LOCK = Lock(b"s" * LOCK_SALT_SIZE, b"n" * LOCK_NONCE_SIZE, log_n=1, r=1)
WORDS = b"correct horse"

LOCKED = pytest.mark.parametrize("lock", [None, LOCK], ids=["plain", "locked"])


def written(record: KeyRecord = RECORD, lock: Lock | None = None) -> bytes:
    return serialize_key_file(lock_key(record, lock, WORDS))


def with_record(data: bytes, record: object, *, text: str = "") -> bytes:
    """Return a key file with another record, and another text of the identity."""
    head, named, *_ = data.split(b"\n")
    named = b"identity " + text.encode() if text else named
    body = b64encode(record if isinstance(record, bytes) else cbor2.dumps(record))
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return b"\n".join((head, named, *lines, b"end of the identity key", b""))


def record_of(data: bytes) -> list[object]:
    found: list[object] = cbor2.loads(b64decode(b"".join(data.split(b"\n")[2:-2])))
    return found


def secret_of(data: bytes) -> bytes:
    secret = record_of(data)[5]
    assert isinstance(secret, bytes)
    return secret


@LOCKED
@pytest.mark.parametrize("record", [RECORD, ROTATED, KeyRecord(SIGNING, SEALING, 0)])
def test_what_is_kept_is_had_again(record: KeyRecord, lock: Lock | None) -> None:
    data = written(record, lock)
    file = parse_key_file(data)
    assert serialize_key_file(file) == data
    assert unlock_key(file, WORDS) == record
    assert file.identity == SigningKey(SIGNING).identity
    assert file.lock == lock
    assert (file.name, file.created, file.rotated) == (record.name, record.created, record.rotated)
    private = X25519PrivateKey.from_private_bytes(record.sealing_seed)
    assert file.sealing_key == private.public_key().public_bytes_raw()


def test_a_person_recognises_the_file_and_the_identity() -> None:
    lines = written().decode("ascii").splitlines()
    assert lines[0] == f"onward identity key {KEY_FILE_VERSION}"
    assert lines[1] == f"identity {identity_text(SigningKey(SIGNING).identity)}"
    assert lines[-1] == "end of the identity key"
    assert max(map(len, lines)) == 65


def test_the_bytes_are_as_the_page_says() -> None:
    # By hashlib and cryptography directly: the check and the encryption by another hand.
    *head, secret = record_of(written(ROTATED, LOCK))
    assert head[4] == [1, 1, 1, LOCK.salt, LOCK.nonce]
    prefix = b"onward/identity/key-file/1" + SigningKey(SIGNING).identity
    key = hashlib.scrypt(WORDS, salt=LOCK.salt, n=2, r=1, p=1, dklen=32)
    assert isinstance(secret, bytes)
    seeds = [SIGNING, LATER, SEALING]
    context = prefix + cbor2.dumps(head)
    assert cbor2.loads(ChaCha20Poly1305(key).decrypt(LOCK.nonce, secret, context)) == seeds
    *head, secret = record_of(written(ROTATED))
    assert head[4] is None
    text = cbor2.dumps(seeds)
    assert secret == text + hashlib.sha256(prefix + cbor2.dumps(head) + text).digest()[:16]


@LOCKED
def test_no_byte_that_is_changed_is_taken(lock: Lock | None) -> None:
    data = written(ROTATED, lock)
    for at in range(len(data)):
        for other in (data[at] ^ 1, data[at] ^ 0x80, 0x0A, 0x41):
            if other == data[at]:
                continue
            with pytest.raises(BadKeyFile):
                unlock_key(parse_key_file(data[:at] + bytes((other,)) + data[at + 1 :]), WORDS)


@LOCKED
def test_a_file_that_is_cut_short_is_told(lock: Lock | None) -> None:
    data = written(ROTATED, lock)
    for size in range(len(data)):
        with pytest.raises(BadKeyFile) as caught:
            parse_key_file(data[:size])
        begun = size > len("onward identity key 1")
        wrong = "cut short" if begun else "first line is not"
        assert wrong in str(caught.value)


def test_a_wrong_passphrase_and_damage_are_one_outcome() -> None:
    file = parse_key_file(written(lock=LOCK))
    assert file.lock is not None
    others = (
        (file, b"wrong horse"),
        (replace(file, secret=file.secret[:-1] + b"\0"), WORDS),
        (replace(file, name="relay in Bergen"), WORDS),
        (replace(file, created=1), WORDS),
        (replace(file, identity=SigningKey(SEALING).identity), WORDS),
        (replace(file, lock=replace(file.lock, p=2)), WORDS),
        (replace(file, lock=replace(file.lock, nonce=bytes(LOCK_NONCE_SIZE))), WORDS),
    )
    for changed, words in others:
        with pytest.raises(BadKeyFile) as caught:
            unlock_key(changed, words)
        assert caught.value.reason == "the passphrase is wrong, or it is damaged"
        assert caught.value.__cause__ is None


def test_a_passphrase_is_asked_for_and_has_a_size() -> None:
    file = lock_key(RECORD, LOCK, WORDS)
    with pytest.raises(PassphraseNeeded, match="a passphrase is needed") as caught:
        unlock_key(file)
    assert caught.value.identity == SigningKey(SIGNING).identity
    for wrong in (b"", b"x" * (MAX_PASSPHRASE + 1)):
        with pytest.raises(BadKey, match="a passphrase has 1 to 1024 bytes"):
            unlock_key(file, wrong)
        with pytest.raises(BadKey, match="a passphrase has 1 to 1024 bytes"):
            lock_key(RECORD, LOCK, wrong)
    assert unlock_key(lock_key(RECORD, LOCK, b"x" * MAX_PASSPHRASE), b"x" * MAX_PASSPHRASE)
    # One that is not encrypted needs none, and opens with any.
    assert unlock_key(lock_key(RECORD)) == unlock_key(lock_key(RECORD), WORDS) == RECORD


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "first line is not"),
        (b"-----BEGIN PRIVATE KEY-----\n", "first line is not"),
        (b"\xff\xfe\x00", "first line is not"),
        (b"onward identity key x\n", "first line is not"),
        (b"onward identity key 2\nwhatever", "is of version 2; the latest here is 1"),
        (b"onward identity key 2\n" + bytes(MAX_KEY_FILE), "is of version 2"),
        (b"onward identity key 1\n" + bytes(MAX_KEY_FILE), "more than 4096 bytes"),
        (b"onward identity key 1\n", "is cut short"),
        (written() + b"\n", "has more behind its end"),
        (written().replace(b"\n", b"\r\n"), "first line is not"),
        (written().replace(b"key 1", b"key 01"), "is damaged"),
        (written().replace(b"key 1", b"key 0"), "is damaged"),
        (written().replace(b"identity aeb", b"identity AEB"), "is damaged"),
        (written().replace(b"identity a", b"identity 7"), "is damaged"),
        (written().replace(b"\nend of", b"\n!\nend of"), "is damaged"),
        (written().replace(b"\nend of", b"\n\nend of"), "is damaged"),
        (with_record(written(), b"\x00" * 9), "is damaged"),
        (with_record(written(), [*record_of(written()), 1]), "is damaged"),
        (with_record(written(), cbor2.dumps(record_of(written())) + b"\0"), "is damaged"),
    ],
)
def test_what_is_no_key_file_is_told(data: bytes, told: str) -> None:
    with pytest.raises(BadKeyFile, match=told):
        parse_key_file(data)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 1),
        (0, "x" * (MAX_KEY_NAME + 1)),
        (0, "a\x1b[2J"),
        (1, -1),
        (2, bytes(31)),
        (3, "now"),
        (4, [1, 1, 1, bytes(16)]),
        (4, [1, 1, 1, bytes(15), bytes(12)]),
        (4, [1, 1, 1, bytes(16), bytes(11)]),
        (4, [1, 0x1_0000, 1, bytes(16), bytes(12)]),
        (5, bytes(15)),
        (5, bytes(120)),
    ],
)
def test_a_field_of_another_kind_is_damage(at: int, value: object) -> None:
    record = record_of(written(ROTATED, LOCK))
    record[at] = value
    with pytest.raises(BadKeyFile, match="is damaged"):
        parse_key_file(with_record(written(ROTATED, LOCK), record))


@pytest.mark.parametrize(
    ("log_n", "r", "p", "told"),
    [
        (18, 8, 1, ""),
        (17, 8, 2, ""),
        (19, 8, 1, "more than 256 MiB"),
        (18, 8, 2, "more than 256 MiB"),
        (18, 9, 1, "more than 256 MiB"),
        (31, 0xFFFF, 0xFFFF, "more than 256 MiB"),
        (0, 8, 1, "no such parameters"),
        (32, 8, 1, "no such parameters"),
        (0xFFFF, 8, 1, "no such parameters"),
        (16, 1, 1, "no such parameters"),
        (15, 1, 1, ""),
        (1, 0, 1, "no such parameters"),
        (1, 1, 0, "no such parameters"),
    ],
)
def test_a_hostile_file_does_not_get_memory(log_n: int, r: int, p: int, told: str) -> None:
    record = record_of(written(RECORD, LOCK))
    record[4] = [log_n, r, p, LOCK.salt, LOCK.nonce]
    data = with_record(written(RECORD, LOCK), record)
    if told:
        with pytest.raises(BadKeyFile, match=told):
            parse_key_file(data)
        with pytest.raises(BadRecord, match=told):
            Lock(LOCK.salt, LOCK.nonce, log_n, r, p)
    else:
        assert parse_key_file(data).lock == Lock(LOCK.salt, LOCK.nonce, log_n, r, p)


def test_a_lock_has_a_salt_and_a_nonce() -> None:
    for salt, nonce in ((b"", LOCK.nonce), (LOCK.salt, b"")):
        with pytest.raises(BadRecord, match="a lock has a salt of 16 bytes and a nonce of 12"):
            Lock(salt, nonce)


def forged(text: object, file: KeyFile) -> KeyFile:
    """Return a file with a secret that has a right check, as its maker could write it."""
    encoded = cbor2.dumps(text)
    head = (file.name, file.created, file.sealing_key, file.rotated, None)
    context = b"onward/identity/key-file/1" + file.identity + cbor2.dumps(head)
    return replace(file, secret=encoded + hashlib.sha256(context + encoded).digest()[:16])


@pytest.mark.parametrize(
    "text",
    [
        (SIGNING, LATER, None),
        (LATER, SEALING, None),
        (SIGNING, SEALING, LATER),
        (SIGNING, SEALING),
        (SIGNING, SEALING, b""),
        (SIGNING[:31], SEALING, None),
        [SIGNING, SEALING, None, 1],
        "keys",
    ],
)
def test_keys_that_are_not_those_of_the_head_are_refused(text: object) -> None:
    with pytest.raises(BadKeyFile, match="is damaged"):
        unlock_key(forged(text, lock_key(RECORD)))


def test_a_previous_key_without_its_time_is_refused() -> None:
    with pytest.raises(BadKeyFile, match="is damaged"):
        unlock_key(forged((SIGNING, LATER, None), lock_key(ROTATED)))
    with pytest.raises(BadRecord, match="go together"):
        KeyRecord(SIGNING, SEALING, 1, previous_seed=LATER)
    with pytest.raises(BadRecord, match="go together"):
        KeyRecord(SIGNING, SEALING, 1, rotated=1)


def test_keys_have_sizes_and_times_and_a_name() -> None:
    for wrong in (SIGNING[:31], SIGNING + b"x"):
        with pytest.raises(BadKey, match="a seed has 32 bytes"):
            KeyRecord(wrong, SEALING, 1)
        with pytest.raises(BadKey, match="a seed has 32 bytes"):
            KeyRecord(SIGNING, wrong, 1)
        with pytest.raises(BadKey, match="a seed has 32 bytes"):
            KeyRecord(SIGNING, SEALING, 1, previous_seed=wrong, rotated=1)
    for created, rotated in ((-1, 1), (1, -1), (MAX_NUMBER + 1, 1), (1, MAX_NUMBER + 1)):
        with pytest.raises(BadRecord, match="a time is"):
            KeyRecord(SIGNING, SEALING, created, previous_seed=LATER, rotated=rotated)
    for name in ("a\nb", "\ud800", "é" * (MAX_KEY_NAME // 2 + 1)):
        with pytest.raises(BadRecord, match="a name has up to 256 bytes"):
            KeyRecord(SIGNING, SEALING, 1, name)
    longest = KeyRecord(SIGNING, SEALING, MAX_NUMBER, "é" * (MAX_KEY_NAME // 2), LATER, MAX_NUMBER)
    assert unlock_key(parse_key_file(written(longest))) == longest


def test_a_rotation_keeps_the_key_before_and_loses_none_that_is_needed() -> None:
    assert ROTATED.rotated is not None
    expected = replace(RECORD, sealing_seed=LATER, previous_seed=SEALING, rotated=ROTATED.rotated)
    assert expected == ROTATED
    until = ROTATED.rotated + OLD_KEY_TIME
    for now in (0, until - 1):
        with pytest.raises(RotatedLately, match="needs the key before it as well") as caught:
            rotate_sealing_key(ROTATED, SIGNING, now)
        assert caught.value.until == until
    again = rotate_sealing_key(ROTATED, SIGNING, until)
    assert (again.sealing_seed, again.previous_seed, again.rotated) == (SIGNING, LATER, until)
    forced = rotate_sealing_key(ROTATED, SIGNING, until - 1, lose_previous=True)
    assert (forced.previous_seed, forced.rotated) == (LATER, until - 1)
    with pytest.raises(BadKey):
        rotate_sealing_key(ROTATED, b"", until)


@LOCKED
def test_no_key_is_in_a_representation_or_an_error(lock: Lock | None) -> None:
    file = lock_key(ROTATED, lock, WORDS)
    shown = [repr(ROTATED), str(ROTATED), repr(file), str(file)]
    for bad in (b"nonsense", written(ROTATED, lock)[:-40], written(ROTATED, lock) + b"x"):
        with pytest.raises(IdentityError) as caught:
            parse_key_file(bad)
        shown += [repr(caught.value), str(caught.value)]
    with pytest.raises(IdentityError) as caught:
        unlock_key(replace(file, secret=bytes(16)), WORDS)
    shown += [repr(caught.value), str(caught.value)]
    for secret in (SIGNING, SEALING, LATER, file.secret, WORDS):
        for form in (repr(secret)[2:20], secret.hex()[:16], b64encode(secret)[:10].decode()):
            assert not [each for each in shown if form in each]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_key_file_or_an_error(tail: bytes) -> None:
    for data in (tail, b"onward identity key 1\n" + tail, with_record(written(), tail)):
        with pytest.raises(BadKeyFile):
            parse_key_file(data)
