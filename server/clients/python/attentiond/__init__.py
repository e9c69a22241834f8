"""A client of attentiond, the service that computes attention. It needs Python 3.9 or later and no package. With NumPy, arrays are
tensors, too, and check.py checks a kernel."""

import array
import functools
import http.client
import io
import json
import math
import re
import struct
import sys
import time
import urllib.error
import urllib.request
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

try:
    import numpy
except ImportError:
    numpy = None

__version__ = "1.0.0rc2"
TRIES = 5
LONGEST_WAIT = 30  # seconds between two tries, whatever the service says
EXACT = 2 ** 53  # the service reads numbers of JSON as float64, which has no larger integers with all digits
SAFETENSORS = "application/vnd.safetensors"
# The types of safetensors, those of the module `array`, and those of NumPy. `array` has the bits of the types that it lacks. An element of F4
# has two numbers, the first one in the lower bits.
TYPES = {"F32": ("f", "<f4"), "F64": ("d", "<f8"), "I64": ("q", "<i8"), "I32": ("i", "<i4"), "BOOL": ("B", "|b1"),
         "U8": ("B", "|u1"), "I8": ("b", "|i1"), "F16": ("H", "<f2"), "BF16": ("H", None), "F8_E4M3": ("B", None), "F8_E5M2": ("B", None),
         "F8_E8M0": ("B", None), "F4": ("B", None)}


class ServiceError(Exception):
    """The service refused a request, or did not answer. `status` is that of HTTP, or 0 without an answer. `pointer` names the
    wrong part of the request (a JSON pointer), and the log of the service has the `request_id`."""

    def __init__(self, status: int, detail: str, pointer: str = "", request_id: str = ""):
        super().__init__(" ".join(filter(None, (str(status or ""), detail, pointer))))
        self.status, self.detail, self.pointer, self.request_id = status, detail, pointer, request_id


class Tensor(NamedTuple):
    """A matrix, or a stack of matrices. Its numbers are in the order of the rows, in an array.array of the type that TYPES names."""

    dtype: str
    shape: Sequence[int]
    data: array.array


class Client:
    """The address of a service, with its API key. `timeout` is the number of seconds that one try may take, and an answer may have
    `max_answer` bytes."""

    def __init__(self, base_url: str = "http://127.0.0.1:8080", api_key: Optional[str] = None, timeout: float = 60, max_answer: int = 1 << 30):
        self.base_url, self.api_key, self.timeout, self.max_answer = base_url.rstrip("/"), api_key, timeout, max_answer

    def ask(self, path: str, request: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Sends a request as JSON, or GET without a request, and returns the answer. −∞ is the float -inf on both sides. An integer
        beyond 2^53 is a ValueError."""
        body = None
        if request is not None:
            # The service knows the options before it reads the matrices.
            members = sorted(_to_json(request).items(), key=lambda member: isinstance(member[1], list))
            body = json.dumps(dict(members), allow_nan=False).encode()
        answer = self._send(path, body, "application/json")
        try:
            return _from_json(json.loads(answer))
        except (ValueError, RecursionError):
            raise ServiceError(200, f"the answer of {self.base_url}{path} is not JSON") from None

    def tensors(self, path: str, tensors: Mapping[str, Any], options: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Sends tensors as bytes, and returns the results by their names. Results are arrays of NumPy, unless NumPy is missing or
        a given tensor is a Tensor. A comparison and lists of words need ask()."""
        plain = numpy is None or any(isinstance(tensor, Tensor) for tensor in tensors.values())
        answer = self._send(path, _pack(tensors, options or {}), SAFETENSORS)
        try:
            return _unpack(answer, plain)
        except (ValueError, TypeError, LookupError, RecursionError, struct.error) as error:
            raise ServiceError(200, f"the answer of {self.base_url}{path} cannot be read: {error}") from None

    def compare(self, path: str, tensors: Mapping[str, Any], options: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Sends tensors as bytes, with expected results such as `expected.output`, and returns the comparison, as JSON has it."""
        answer = self._send(path, _pack(tensors, {"return": ["comparison"], **(options or {})}), SAFETENSORS, "application/json")
        return json.loads(answer)["comparison"]

    def _send(self, path, body, kind, accept=None):
        headers = {"Content-Type": kind} if body is not None else {}
        if accept:
            headers["Accept"] = accept
        key = (self.api_key or "").strip()
        if key:
            if not key.isascii() or not key.isprintable():
                raise ValueError("the API key has a character that cannot be sent")
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.base_url + path, body, headers)
        for tries_left in reversed(range(TRIES)):
            try:
                with OPENER.open(request, timeout=self.timeout) as response:
                    return _read(response, self.max_answer)
            except urllib.error.HTTPError as error:
                wait = error.headers.get("Retry-After")  # given if the same request may succeed later
                with error:
                    if error.code != 503 or wait is None or tries_left == 0:
                        raise _problem(error, self.max_answer) from None
                # It may be a date. Nine digits are enough for any wait.
                time.sleep(min(int(wait[:9]) if re.fullmatch("[0-9]+", wait) else 1, LONGEST_WAIT))
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = getattr(error, "reason", error)
                raise ServiceError(0, f"no answer from {self.base_url}: {reason}") from error
        raise AssertionError("the last try returns or raises")


# The time-out of a socket holds for each of its calls alone. These classes let it hold for a whole try.
def _hurry(sock, end):
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(left)


class _Stream(io.RawIOBase):
    """What a socket receives up to a time."""

    def __init__(self, raw, sock, end):
        super().__init__()
        self.raw, self.sock, self.end = raw, sock, end

    def readable(self):
        return True

    def readinto(self, buffer):
        _hurry(self.sock, self.end)
        return self.raw.readinto(buffer)

    def close(self):
        self.raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock, *arguments, end, **named):
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Stream(self.fp.detach(), sock, end))

    def begin(self):
        super().begin()
        while 100 <= self.status < 200:  # the answer follows
            self.headers = None
            super().begin()


class _Connection(http.client.HTTPConnection):
    def __init__(self, *arguments, timeout, **named):
        super().__init__(*arguments, timeout=timeout, **named)
        self.end = time.monotonic() + timeout
        self.response_class = functools.partial(_Response, end=self.end)

    def send(self, data):
        if self.sock:
            _hurry(self.sock, self.end)
        super().send(data)


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req):
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req):
        return self.do_open(_SecureConnection, req)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a request and its API key go to no other address."""

    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(_Http, _Https, _Stay)


def _read(response, most):
    """Returns the body of an answer, up to so many bytes. It arrives in pieces, so that a wrong length takes no memory."""
    body = bytearray()
    while piece := response.read1(1 << 20):
        body += piece
        if len(body) > most:
            raise ServiceError(response.status, f"the answer has more than {most} bytes")
    if response.length:
        raise http.client.IncompleteRead(body, response.length)
    return body


def _problem(error, most):
    """Returns the error of an answer. Proxies say what they like in place of a problem document."""
    try:
        said = json.loads(_read(error, most))
    except (ValueError, RecursionError, OSError, http.client.HTTPException):
        said = None
    texts = {name: text for name, text in said.items() if isinstance(text, str)} if isinstance(said, dict) else {}
    detail = texts.get("detail") or texts.get("error") or error.reason
    return ServiceError(error.code, detail, texts.get("pointer", ""), error.headers.get("X-Request-Id", ""))


def _to_json(value):
    """Returns a value as JSON has it: arrays as lists, and −∞ as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _to_json(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(member) for member in value]
    if isinstance(value, int) and abs(value) > EXACT:
        raise ValueError(f"{value} is an integer beyond 2^53, which loses digits in JSON")
    return None if value == -math.inf else value


def _from_json(value):
    """Replaces null by −∞ in arrays. In a comparison null means another thing."""
    if isinstance(value, dict):
        return {key: member if key == "comparison" else _from_json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [-math.inf if member is None else _from_json(member) for member in value]
    return value


def _tensor(name, value):
    """Returns the type, the shape and the bytes of a tensor."""
    if isinstance(value, Tensor):
        wanted = TYPES.get(value.dtype, (None,))[0]
        if wanted is None:
            raise TypeError(f"{name} has the type {value.dtype}, which is none of {', '.join(TYPES)}")
        if getattr(value.data, "typecode", None) != wanted:
            raise TypeError(f'{name}: the data is no array.array("{wanted}"), which {value.dtype} needs')
        if math.prod(value.shape) != len(value.data) * (2 if value.dtype == "F4" else 1):
            raise ValueError(f"{name}: the data has the length {len(value.data)}, which does not fit the shape {list(value.shape)}")
        data = array.array(wanted, value.data)
        if sys.byteorder == "big":
            data.byteswap()
        return value.dtype, list(value.shape), data.tobytes()
    if numpy is None:
        raise TypeError(f"{name} is no Tensor, and NumPy is not installed")
    value = numpy.asarray(value)
    for dtype, (_, of_numpy) in TYPES.items():
        if of_numpy and of_numpy in (value.dtype.str, value.dtype.newbyteorder().str):
            return dtype, value.shape, value.astype(of_numpy).tobytes()
    raise TypeError(f"{name} has the type {value.dtype}, which is none of {', '.join(key for key in TYPES if TYPES[key][1])}")


def _pack(tensors, options):
    """Returns safetensors: the length of a JSON text, the text, and the bytes of the tensors."""
    metadata = {name: json.dumps(_to_json(value), allow_nan=False) for name, value in options.items()}
    head, parts, at = {"__metadata__": metadata}, [], 0
    for name, value in tensors.items():
        dtype, shape, data = _tensor(name, value)
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(head).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _unpack(body, plain):
    """Returns the tensors of safetensors, as Tensors or as arrays of NumPy."""
    start = 8 + struct.unpack_from("<Q", body)[0]
    if start > len(body):
        raise ValueError("it is cut")
    head = json.loads(body[8:start])
    if not isinstance(head, dict):
        raise ValueError("its header is no object")
    head.pop("__metadata__", None)
    results = {}
    for name, found in head.items():
        dtype, shape, (begin, end) = found["dtype"], found["shape"], found["data_offsets"]
        code, of_numpy = TYPES.get(dtype, (None, None))
        if (code if plain else of_numpy) is None:
            raise TypeError(f'{name} has the type {dtype}; the option "dtype": "float32" avoids it')
        width = array.array(code).itemsize if code else 2
        sizes = [begin, end, *shape]
        if not all(isinstance(size, int) and 0 <= size <= sys.maxsize for size in sizes) or math.prod(shape) * width != end - begin \
                or start + end > len(body):
            raise ValueError(f"{name} is cut")
        data = body[start + begin:start + end]
        if plain:
            numbers = array.array(code, bytes(data))
            if sys.byteorder == "big":
                numbers.byteswap()
            results[name] = Tensor(dtype, shape, numbers)
        else:
            results[name] = numpy.frombuffer(data, of_numpy).reshape(shape)
    return results
