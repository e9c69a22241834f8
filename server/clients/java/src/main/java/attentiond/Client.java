package attentiond;

import java.io.IOException;
import java.lang.reflect.Array;
import java.math.BigInteger;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A client of attentiond, the service that computes attention. It needs Java 17 or later, and no library. Threads may share it. */
public final class Client {
    private static final String JSON = "application/json";
    private static final String SAFETENSORS = "application/vnd.safetensors";
    private static final long EXACT = 1L << 53; // the service reads numbers of JSON as float64, which has no larger integers with all digits
    private static final int TRIES = 5;
    private static final int LONGEST_WAIT = 30; // seconds between two tries, whatever the service says

    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final String baseUrl;
    private final String apiKey;
    private final Duration timeout;
    private final long maxAnswer;

    public Client(String baseUrl) {
        this(baseUrl, null, Duration.ofSeconds(60));
    }

    /** The API key may be null. One try may take as long as the time-out. An answer may have 1 GiB. */
    public Client(String baseUrl, String apiKey, Duration timeout) {
        this(baseUrl, apiKey, timeout, 1L << 30);
    }

    /** An answer may have `maxAnswer` bytes. */
    public Client(String baseUrl, String apiKey, Duration timeout, long maxAnswer) {
        this.baseUrl = baseUrl.replaceAll("/+$", "");
        this.apiKey = apiKey == null ? "" : apiKey.strip();
        if (!this.apiKey.matches("[ -~]*")) throw new IllegalArgumentException("the API key has a character that cannot be sent");
        this.timeout = timeout;
        this.maxAnswer = maxAnswer;
    }

    /** The service refused a request, or did not answer. */
    public static final class ServiceException extends IOException {
        private static final long serialVersionUID = 1;
        /** The status of HTTP, or 0 without an answer. */
        public final int status;
        public final String detail;
        /** A JSON pointer to the wrong part of the request, or "". */
        public final String pointer;
        /** The log of the service has it, too. */
        public final String requestId;

        ServiceException(int status, String detail, String pointer, String requestId, Throwable cause) {
            super(((status == 0 ? "" : status + " ") + detail + " " + pointer).strip(), cause);
            this.status = status;
            this.detail = detail;
            this.pointer = pointer;
            this.requestId = requestId;
        }
    }

    /**
     * A number, a matrix, or a stack of matrices. The data is a float[], double[], long[], int[] or boolean[] with the numbers in
     * the order of the rows.
     */
    public record Tensor(Object data, int... shape) {
        private static final Map<Class<?>, String> TYPES = Map.of(float[].class, "F32", double[].class, "F64", long[].class, "I64",
            int[].class, "I32", boolean[].class, "BOOL");

        public Tensor {
            if (!TYPES.containsKey(data.getClass()))
                throw new IllegalArgumentException("the data of a tensor is a " + data.getClass().getSimpleName()
                    + ", not a float[], double[], long[], int[] or boolean[]");
            if (Array.getLength(data) != size(shape))
                throw new IllegalArgumentException("the data of a tensor has the length " + Array.getLength(data)
                    + ", which does not fit the shape " + Arrays.toString(shape));
        }

        private static int size(int... shape) {
            return Arrays.stream(shape).reduce(1, Math::multiplyExact);
        }

        /** Reads a number or nested lists of an answer in JSON. Null is −∞. */
        public static Tensor of(Object json) {
            List<Integer> shape = new ArrayList<>();
            for (Object first = json; first instanceof List<?> list; first = list.isEmpty() ? null : list.get(0)) shape.add(list.size());
            List<Double> numbers = new ArrayList<>();
            flatten(json, shape, numbers);
            return new Tensor(numbers.stream().mapToDouble(x -> x).toArray(), shape.stream().mapToInt(x -> x).toArray());
        }

        private static void flatten(Object json, List<Integer> shape, List<Double> numbers) {
            if (json != null && !(json instanceof List) && !(json instanceof Number))
                throw new IllegalArgumentException(json + " is no number of a tensor");
            if (json instanceof List<?> list ? shape.isEmpty() || shape.get(0) != list.size() : !shape.isEmpty())
                throw new IllegalArgumentException("the rows of a tensor differ in length");
            if (json instanceof List<?> list) list.forEach(member -> flatten(member, shape.subList(1, shape.size()), numbers));
            else numbers.add(json instanceof Number number ? number.doubleValue() : Double.NEGATIVE_INFINITY);
        }

        /** The numbers of a tensor of any type. Those of boolean are 1 and 0. */
        public double[] doubles() {
            double[] numbers = new double[Array.getLength(data)];
            for (int i = 0; i < numbers.length; i++)
                numbers[i] = data instanceof boolean[] is ? (is[i] ? 1 : 0) : ((Number) Array.get(data, i)).doubleValue();
            return numbers;
        }

        /** The shape and the first numbers, such as "[2, 3] 1.0 2.0 3.0 4.0 5.0 6.0". */
        @Override
        public String toString() {
            StringBuilder text = new StringBuilder(Arrays.toString(shape));
            int count = Array.getLength(data);
            for (int i = 0; i < Math.min(count, 8); i++) text.append(' ').append(Array.get(data, i));
            return text.append(count > 8 ? " ..." : "").toString();
        }

        /** The numbers of a tensor of float32. */
        public float[] floats() {
            return (float[]) data;
        }
    }

    /**
     * Sends a request as JSON, or GET if it is null, and returns the answer. Values of a request may be maps, lists, arrays, tensors,
     * texts, numbers, booleans and null; −∞ becomes null. Values of an answer are maps, lists, texts, Long, Double, Boolean and null;
     * Tensor.of() reads matrices. An integer beyond 2^53 is an IllegalArgumentException.
     */
    public Map<String, Object> ask(String path, Map<String, ?> request) throws ServiceException, InterruptedException {
        byte[] body = null;
        if (request != null) {
            // The service knows the options before it reads the matrices.
            Map<String, Object> members = new LinkedHashMap<>();
            request.forEach((name, value) -> { if (!isMatrix(value)) members.put(name, value); });
            request.forEach((name, value) -> { if (isMatrix(value)) members.put(name, value); });
            body = Json.write(members).getBytes(StandardCharsets.UTF_8);
        }
        return read(path, send(path, JSON, JSON, body), Client::parse);
    }

    private static boolean isMatrix(Object value) {
        return value instanceof Tensor || value instanceof Collection || value != null && value.getClass().isArray();
    }

    private static Map<String, Object> parse(byte[] answer) {
        return Json.object(new String(answer, StandardCharsets.UTF_8));
    }

    /** Sends tensors as bytes, and returns the results by their names. A comparison and lists of words need compare() or ask(). */
    public Map<String, Tensor> tensors(String path, Map<String, Tensor> tensors, Map<String, ?> options)
            throws ServiceException, InterruptedException {
        return read(path, send(path, SAFETENSORS, SAFETENSORS, pack(tensors, options)), Client::unpack);
    }

    /** Sends tensors as bytes, with expected results such as `expected.output`, and returns the comparison. */
    @SuppressWarnings("unchecked")
    public Map<String, Object> compare(String path, Map<String, Tensor> tensors, Map<String, ?> options)
            throws ServiceException, InterruptedException {
        Map<String, Object> asked = new LinkedHashMap<>(Map.of("return", List.of("comparison")));
        asked.putAll(options);
        return (Map<String, Object>) read(path, send(path, SAFETENSORS, JSON, pack(tensors, asked)), Client::parse).get("comparison");
    }

    private interface Reader<T> {
        T read(byte[] answer);
    }

    private <T> T read(String path, byte[] answer, Reader<T> reader) throws ServiceException {
        try {
            return reader.read(answer);
        } catch (RuntimeException wrong) {
            throw new ServiceException(200, "the answer of " + baseUrl + path + " cannot be read: " + wrong.getMessage(), "", "", wrong);
        }
    }

    private byte[] send(String path, String kind, String accept, byte[] body) throws ServiceException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(baseUrl + path)).header("Accept", accept);
        if (body != null) request.header("Content-Type", kind).POST(BodyPublishers.ofByteArray(body));
        if (!apiKey.isEmpty()) request.header("Authorization", "Bearer " + apiKey);
        for (int tries = 1;; tries++) {
            HttpResponse<byte[]> response = sendOnce(request.build());
            if (response.statusCode() == 200) return response.body();
            String wait = response.headers().firstValue("Retry-After").orElse(null); // given if the same request may succeed later
            if (response.statusCode() != 503 || wait == null || tries == TRIES) throw problem(response);
            // It may be a date. Nine digits are enough for any wait.
            boolean seconds = wait.matches("[0-9]+");
            Thread.sleep(1000L * (seconds ? Math.min(Integer.parseInt(wait.substring(0, Math.min(wait.length(), 9))), LONGEST_WAIT) : 1));
        }
    }

    private HttpResponse<byte[]> sendOnce(HttpRequest request) throws ServiceException, InterruptedException {
        AtomicBoolean answered = new AtomicBoolean();
        HttpResponse.BodyHandler<byte[]> handler = head -> {
            answered.set(true);
            return new Limited(BodyHandlers.ofByteArray().apply(head), maxAnswer);
        };
        long end = System.nanoTime() + timeout.toNanos();
        for (boolean again = true;; again = false) {
            CompletableFuture<HttpResponse<byte[]>> response = http.sendAsync(request, handler);
            try {
                // The time-out of HttpRequest ends with the headers of the answer; this one holds for the body, too.
                return response.get(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            } catch (TimeoutException late) {
                throw new ServiceException(0, "no answer from " + baseUrl + ": timed out after " + timeout.toMillis() + " ms", "", "", late);
            } catch (ExecutionException failed) {
                // The service may have closed a connection that this client was about to use again.
                if (again && !answered.get()) continue;
                if (failed.getCause() instanceof TooLong) throw new ServiceException(200, failed.getCause().getMessage(), "", "", null);
                throw new ServiceException(0, "no answer from " + baseUrl + ": " + failed.getCause(), "", "", failed.getCause());
            } finally {
                response.cancel(true);
            }
        }
    }

    private static final class TooLong extends IOException {
        private static final long serialVersionUID = 1;

        TooLong(String message) {
            super(message);
        }
    }

    /** Receives the body of an answer, up to so many bytes. */
    private static final class Limited implements HttpResponse.BodySubscriber<byte[]> {
        private final HttpResponse.BodySubscriber<byte[]> inner;
        private final long most;
        private long size;
        private Flow.Subscription subscription;

        Limited(HttpResponse.BodySubscriber<byte[]> inner, long most) {
            this.inner = inner;
            this.most = most;
        }

        @Override public CompletionStage<byte[]> getBody() { return inner.getBody(); }
        @Override public void onError(Throwable wrong) { inner.onError(wrong); }
        @Override public void onComplete() { inner.onComplete(); }

        @Override public void onSubscribe(Flow.Subscription begun) {
            subscription = begun;
            inner.onSubscribe(begun);
        }

        @Override public void onNext(List<ByteBuffer> pieces) {
            for (ByteBuffer piece : pieces) size += piece.remaining();
            if (size <= most) {
                inner.onNext(pieces);
            } else {
                subscription.cancel();
                inner.onError(new TooLong("the answer has more than " + most + " bytes"));
            }
        }
    }

    /** Returns the exception of an answer. Proxies say what they like in place of a problem document. */
    private static ServiceException problem(HttpResponse<byte[]> response) {
        Map<String, Object> said = new LinkedHashMap<>();
        try {
            said.putAll(Json.object(new String(response.body(), StandardCharsets.UTF_8)));
        } catch (RuntimeException notJson) {
            // The detail below says it.
        }
        said.values().removeIf(value -> !(value instanceof String));
        Object detail = said.getOrDefault("detail", said.getOrDefault("error", "the answer is no problem document"));
        return new ServiceException(response.statusCode(), (String) detail, (String) said.getOrDefault("pointer", ""),
            response.headers().firstValue("X-Request-Id").orElse(""), null);
    }

    /** Returns safetensors: the length of a JSON text, the text, and the bytes of the tensors. */
    private static byte[] pack(Map<String, Tensor> tensors, Map<String, ?> options) {
        Map<String, String> metadata = new LinkedHashMap<>();
        options.forEach((name, value) -> metadata.put(name, Json.write(value)));
        Map<String, Object> head = new LinkedHashMap<>();
        head.put("__metadata__", metadata);
        int size = 0;
        for (Map.Entry<String, Tensor> entry : tensors.entrySet()) {
            Tensor tensor = entry.getValue();
            String type = Tensor.TYPES.get(tensor.data.getClass());
            int end = Math.addExact(size, Math.multiplyExact(Array.getLength(tensor.data), width(type)));
            head.put(entry.getKey(), Map.of("dtype", type, "shape", tensor.shape, "data_offsets", new int[] {size, end}));
            size = end;
        }
        byte[] text = Json.write(head).getBytes(StandardCharsets.UTF_8);
        ByteBuffer body = ByteBuffer.allocate(8 + text.length + size).order(ByteOrder.LITTLE_ENDIAN).putLong(text.length).put(text);
        for (Tensor tensor : tensors.values()) {
            if (tensor.data instanceof float[] numbers) for (float number : numbers) body.putFloat(number);
            if (tensor.data instanceof double[] numbers) for (double number : numbers) body.putDouble(number);
            if (tensor.data instanceof long[] numbers) for (long number : numbers) body.putLong(number);
            if (tensor.data instanceof int[] numbers) for (int number : numbers) body.putInt(number);
            if (tensor.data instanceof boolean[] numbers) for (boolean number : numbers) body.put((byte) (number ? 1 : 0));
        }
        return body.array();
    }

    private static int width(String type) {
        return type.equals("BOOL") ? 1 : type.endsWith("32") ? 4 : 8;
    }

    private static Map<String, Tensor> unpack(byte[] answer) {
        ByteBuffer body = ByteBuffer.wrap(answer).order(ByteOrder.LITTLE_ENDIAN);
        int length = Math.toIntExact(body.getLong());
        Map<String, Object> head = Json.object(new String(answer, 8, length, StandardCharsets.UTF_8));
        head.remove("__metadata__");
        Map<String, Tensor> results = new LinkedHashMap<>();
        head.forEach((name, found) -> {
            Map<?, ?> described = (Map<?, ?>) found;
            String type = (String) described.get("dtype");
            int[] shape = sizes(described.get("shape"));
            int[] offsets = sizes(described.get("data_offsets"));
            int count = Tensor.size(shape);
            if (!Tensor.TYPES.containsValue(type))
                throw new IllegalArgumentException(name + " has the type " + type + "; the option \"dtype\": \"float32\" avoids it");
            if (offsets.length != 2 || offsets[1] - offsets[0] != (long) count * width(type))
                throw new IllegalArgumentException(name + " is cut");
            ByteBuffer data = body.slice(8 + length + offsets[0], count * width(type)).order(ByteOrder.LITTLE_ENDIAN);
            results.put(name, new Tensor(numbers(type, data, count), shape));
        });
        return results;
    }

    /** Returns the sizes of a shape, or offsets. */
    private static int[] sizes(Object json) {
        return ((List<?>) json).stream().mapToInt(size -> {
            if ((Long) size < 0) throw new IllegalArgumentException(size + " is no size");
            return Math.toIntExact((Long) size);
        }).toArray();
    }

    private static Object numbers(String type, ByteBuffer data, int count) {
        switch (type) {
            case "F32": { float[] numbers = new float[count]; data.asFloatBuffer().get(numbers); return numbers; }
            case "F64": { double[] numbers = new double[count]; data.asDoubleBuffer().get(numbers); return numbers; }
            case "I64": { long[] numbers = new long[count]; data.asLongBuffer().get(numbers); return numbers; }
            case "I32": { int[] numbers = new int[count]; data.asIntBuffer().get(numbers); return numbers; }
            default: { boolean[] numbers = new boolean[count]; for (int i = 0; i < count; i++) numbers[i] = data.get(i) != 0; return numbers; }
        }
    }

    /** JSON as far as the service needs it. */
    private static final class Json {
        private static final Pattern NUMBER = Pattern.compile("-?\\d+(\\.\\d+|(?=[eE]))?(?:[eE][-+]?\\d+)?");
        private final String text;
        private int at;
        private int levels; // that the value at `at` is in

        private Json(String text) {
            this.text = text;
        }

        static String write(Object value) {
            StringBuilder text = new StringBuilder();
            write(text, value);
            return text.toString();
        }

        private static void write(StringBuilder text, Object value) {
            if (value instanceof Tensor tensor) {
                write(text, new Rows(tensor, 0, 0, Array.getLength(tensor.data)));
            } else if (value instanceof Rows rows && rows.axis == rows.tensor.shape.length) {
                write(text, Array.get(rows.tensor.data, rows.begin));
            } else if (value instanceof Rows rows) {
                int count = rows.tensor.shape[rows.axis];
                list(text, count, i -> new Rows(rows.tensor, rows.axis + 1, rows.begin + i * (rows.size / count), rows.size / count));
            } else if (value instanceof Map<?, ?> map) {
                String before = "{";
                for (Map.Entry<?, ?> entry : map.entrySet()) {
                    write(text.append(before), String.valueOf(entry.getKey()));
                    write(text.append(':'), entry.getValue());
                    before = ",";
                }
                text.append(map.isEmpty() ? "{}" : "}");
            } else if (value instanceof Collection<?> members) {
                write(text, members.toArray());
            } else if (value != null && value.getClass().isArray()) {
                list(text, Array.getLength(value), i -> Array.get(value, i));
            } else if (value instanceof CharSequence characters) {
                text.append('"');
                characters.chars().forEach(c -> text.append(
                    c == '"' || c == '\\' ? "\\" + (char) c : c < ' ' ? String.format("\\u%04x", c) : String.valueOf((char) c)));
                text.append('"');
            } else if (value instanceof Number number && !Double.isFinite(number.doubleValue())) {
                if (number.doubleValue() != Double.NEGATIVE_INFINITY) throw new IllegalArgumentException(value + " has no form in JSON");
                text.append("null");
            } else if (value instanceof Long whole && (whole > EXACT || whole < -EXACT) || value instanceof BigInteger large && large.abs().compareTo(BigInteger.valueOf(EXACT)) > 0) {
                throw new IllegalArgumentException(value + " is an integer beyond 2^53, which loses digits in JSON");
            } else if (value == null || value instanceof Number || value instanceof Boolean) {
                text.append(value);
            } else {
                throw new IllegalArgumentException("a " + value.getClass() + " has no form in JSON");
            }
        }

        /** The part of a tensor that begins at an element and has so many elements. Axes before `axis` are chosen. */
        private record Rows(Tensor tensor, int axis, int begin, int size) {}

        private static void list(StringBuilder text, int count, IntFunction<Object> member) {
            text.append('[');
            for (int i = 0; i < count; i++) write(i == 0 ? text : text.append(','), member.apply(i));
            text.append(']');
        }

        @SuppressWarnings("unchecked")
        static Map<String, Object> object(String text) {
            Json json = new Json(text);
            Object value = json.value();
            if (!(value instanceof Map) || json.peek() != 0) throw json.wrong();
            return (Map<String, Object>) value;
        }

        private IllegalArgumentException wrong() {
            return new IllegalArgumentException("it is not JSON at character " + at);
        }

        /** Skips white space, and returns the next character, or 0 at the end. */
        private char peek() {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
            return at < text.length() ? text.charAt(at) : 0;
        }

        private boolean next(char wanted) {
            if (peek() != wanted) return false;
            at++;
            return true;
        }

        private void expect(char wanted) {
            if (!next(wanted)) throw wrong();
        }

        private Object value() {
            if (++levels > 100) throw wrong();
            try {
                return valueHere();
            } finally {
                levels--;
            }
        }

        private Object valueHere() {
            if (next('{')) {
                Map<String, Object> map = new LinkedHashMap<>();
                if (next('}')) return map;
                do {
                    String name = string();
                    expect(':');
                    map.put(name, value());
                } while (next(','));
                expect('}');
                return map;
            }
            if (next('[')) {
                List<Object> list = new ArrayList<>();
                if (next(']')) return list;
                do list.add(value()); while (next(','));
                expect(']');
                return list;
            }
            if (peek() == '"') return string();
            int begin = at;
            while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) at++;
            String word = text.substring(begin, at);
            if (word.equals("null")) return null;
            if (word.equals("true") || word.equals("false")) return word.equals("true");
            Matcher number = NUMBER.matcher(word);
            if (!number.matches()) throw wrong();
            return number.group(1) == null && word.length() < 19 ? (Object) Long.parseLong(word) : (Object) Double.parseDouble(word);
        }

        private String string() {
            expect('"');
            StringBuilder said = new StringBuilder();
            for (char c = text.charAt(at++); c != '"'; c = text.charAt(at++)) {
                if (c == '\\') {
                    c = text.charAt(at++);
                    int known = "bfnrt".indexOf(c);
                    if (known >= 0) c = "\b\f\n\r\t".charAt(known);
                    if (c == 'u') {
                        c = (char) Integer.parseInt(text.substring(at, at + 4), 16);
                        at += 4;
                    }
                }
                said.append(c);
            }
            return said.toString();
        }
    }
}
