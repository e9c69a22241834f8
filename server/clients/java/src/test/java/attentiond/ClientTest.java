// ClientTest.java tests the client against the daemon at $ATTENTIOND_URL, without a library for tests:
//
//     javac -d target $(find src -name '*.java') && ATTENTIOND_URL=http://127.0.0.1:8080 java -cp target attentiond.ClientTest
//
// It tests tries, time-outs and broken answers against tests/clients/own/stub.py, if $ATTENTIOND_STUB_URL has its address.
package attentiond;

import attentiond.Client.ServiceException;
import attentiond.Client.Tensor;
import java.math.BigInteger;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.IntStream;

final class ClientTest {
    private interface Sees {
        boolean sees(int i, int j);
    }

    private static final Client CLIENT = new Client(System.getenv("ATTENTIOND_URL") + "/");
    private static final double[][] Q = matrix(3, 4, 1), K = matrix(5, 4, 20), V = matrix(5, 2, 50);
    private static final List<String> NAMES = List.of("masked_scores", "weights", "output");
    private static final Sees MASK = (i, j) -> (i + j) % 3 != 0;

    private static void check(boolean holds, Object otherwise) {
        if (!holds) throw new AssertionError(otherwise);
    }

    /** Returns numbers that float32 holds exactly. */
    private static double[][] matrix(int rows, int columns, int seed) {
        double[][] matrix = new double[rows][columns];
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) matrix[i][j] = Math.floor(Math.sin(seed + i * columns + j) * 1024) / 512;
        return matrix;
    }

    /** Returns the masked scores, the weights and the output, where a query i sees a key j if sees(i, j). */
    private static double[][][] attention(Sees sees) {
        double[][] scores = new double[3][5], weights = new double[3][5], output = new double[3][2];
        for (int i = 0; i < 3; i++) {
            double sum = 0;
            for (int j = 0; j < 5; j++) {
                for (int c = 0; c < 4; c++) scores[i][j] += Q[i][c] * K[j][c] / 2;
                if (!sees.sees(i, j)) scores[i][j] = Double.NEGATIVE_INFINITY;
                sum += Math.exp(scores[i][j]);
            }
            for (int j = 0; j < 5; j++) {
                weights[i][j] = Math.exp(scores[i][j]) / sum;
                for (int c = 0; c < 2; c++) output[i][c] += weights[i][j] * V[j][c];
            }
        }
        return new double[][][] {scores, weights, output};
    }

    private static void near(Tensor got, double[][] expected, double bound) {
        check(Arrays.equals(got.shape(), new int[] {expected.length, expected[0].length}), Arrays.toString(got.shape()));
        double[] numbers = got.doubles();
        for (int i = 0; i < numbers.length; i++) {
            double right = expected[i / expected[0].length][i % expected[0].length];
            check(numbers[i] == right || Math.abs(numbers[i] - right) <= bound, numbers[i] + " is not " + right);
        }
    }

    private static ServiceException refused(int status, String text, Callable<?> ask) throws Exception {
        try {
            ask.call();
        } catch (ServiceException error) {
            check(error.status == status && error.detail.contains(text), "the error is " + error + ", not " + status + " " + text);
            return error;
        }
        throw new AssertionError("it is not refused: " + text);
    }

    private static void wrong(String text, Callable<?> ask) throws Exception {
        try {
            ask.call();
        } catch (IllegalArgumentException error) {
            check(error.getMessage().contains(text), error);
            return;
        }
        throw new AssertionError("it is accepted: " + text);
    }

    private static Tensor float64(double[][] rows) {
        return new Tensor(Arrays.stream(rows).flatMapToDouble(Arrays::stream).toArray(), rows.length, rows[0].length);
    }

    private static Tensor float32(double[][] rows) {
        double[] numbers = float64(rows).doubles();
        float[] data = new float[numbers.length];
        for (int i = 0; i < data.length; i++) data[i] = (float) numbers[i];
        return new Tensor(data, rows.length, rows[0].length);
    }

    private static Tensor mask() {
        boolean[] data = new boolean[15];
        for (int i = 0; i < 15; i++) data[i] = MASK.sees(i / 5, i % 5);
        return new Tensor(data, 3, 5);
    }

    private static Map<String, Object> given(Object... more) {
        Map<String, Object> request = new HashMap<>(Map.of("Q", Q, "K", K, "V", V));
        for (int i = 0; i < more.length; i += 2) request.put((String) more[i], more[i + 1]);
        return request;
    }

    private static Map<String, Tensor> tensors() {
        return new HashMap<>(Map.of("Q", float32(Q), "K", float32(K), "V", float32(V)));
    }

    private static void testJson() throws Exception {
        Map<String, Object> answer = CLIENT.ask("/attention", given("causal", true, "return", NAMES));
        double[][][] expected = attention((i, j) -> j <= i);
        for (int i = 0; i < 3; i++) near(Tensor.of(answer.get(NAMES.get(i))), expected[i], 1e-5);
        double[] bias = IntStream.range(0, 15).mapToDouble(i -> MASK.sees(i / 5, i % 5) ? 0 : Double.NEGATIVE_INFINITY).toArray();
        for (Map<String, Object> request : List.of(given("bias", new Tensor(bias, 3, 5), "Q", float32(Q)), given("mask", mask())))
            near(Tensor.of(CLIENT.ask("/attention", request).get("weights")), attention(MASK)[1], 1e-5);
        check(CLIENT.ask("/version", null).get("version") instanceof String, "/version says no version");
        // The names of the words come back as they went: quotes, a backslash, control characters, and characters beyond ASCII.
        List<String> words = List.of("\"", "\\", "\t", "é", "\uD83D\uDE00");
        Map<String, Object> named = CLIENT.ask("/embeddings", Map.of("tokens", words, "embedding", K));
        check(words.equals(named.get("tokens")), named.get("tokens"));
        check(named.get("ids") instanceof List<?> ids && ids.get(0) instanceof Long, named.get("ids"));
    }

    private static void testComparisonOfBytes() throws Exception {
        double[][] output = attention((i, j) -> true)[2];
        for (boolean right : new boolean[] {true, false}) {
            Map<String, Tensor> questions = tensors();
            questions.put("expected.output", float32(output));
            Map<String, Object> comparison = CLIENT.compare("/attention", questions, Map.of("scale", 0.5));
            check(comparison.get("within_tolerance").equals(right), comparison);
            output[0][0]++;
        }
    }

    private static void testTensors() throws Exception {
        for (boolean twice : new boolean[] {false, true}) {
            Map<String, Tensor> questions = twice ? new HashMap<>(Map.of("Q", float64(Q), "K", float64(K), "V", float64(V))) : tensors();
            questions.put("mask", mask());
            Map<String, Tensor> results = CLIENT.tensors("/attention", questions, Map.of("return", NAMES));
            for (int i = 0; i < 3; i++) {
                near(results.get(NAMES.get(i)), attention(MASK)[i], twice ? 1e-13 : 1e-5);
                check(twice || results.get(NAMES.get(i)).floats().length > 0, "it is no float32");
            }
        }
    }

    private static void testWholeNumbersAndOptions() throws Exception {
        Map<String, Tensor> questions = tensors();
        questions.put("lengths", new Tensor(new long[] {4}, 1));
        Map<String, Tensor> results = CLIENT.tensors("/attention", questions,
            Map.of("causal", "bottom_right", "window", new int[] {2, 0}, "top_k", 2, "return", List.of("weights", "top_k", "statistics")));
        double[][] weights = attention((i, j) -> i - 1 <= j && j <= i + 1 && j < 4)[1];
        near(results.get("weights"), weights, 1e-5);
        long[] best = Arrays.stream(weights).flatMapToLong(row -> IntStream.range(0, 5).boxed()
            .sorted((a, b) -> Double.compare(row[b], row[a])).limit(2).mapToLong(j -> j)).toArray();
        check(Arrays.equals((long[]) results.get("top_k.indices").data(), best), "top_k.indices is wrong");
        check(results.get("statistics.variance.Q").shape().length == 0, "a number has a shape");
    }

    private static void testErrors() throws Exception {
        Map<String, Tensor> questions = tensors();
        questions.put("K", new Tensor(new float[] {1}, 1, 1));
        for (Callable<?> ask : List.<Callable<?>>of(() -> CLIENT.ask("/attention", given("K", List.of(List.of(1)))),
                () -> CLIENT.tensors("/attention", questions, Map.of()))) {
            ServiceException error = refused(422, "K has 1 column but Q has 4", ask);
            check(error.pointer.equals("/K") && !error.requestId.isEmpty(), error);
            check(error.getMessage().equals("422 " + error.detail + " /K"), error);
        }
        refused(422, "inputs is missing", () -> CLIENT.ask("/v2/models/attention/infer", Map.of()));
        refused(404, "there is nothing at /nothing", () -> CLIENT.ask("/nothing", null));
        refused(0, "no answer from http://127.0.0.1:1", () -> new Client("http://127.0.0.1:1").ask("/attention", given()));
        wrong("the API key has a character that cannot be sent", () -> new Client("", "key\r\nX: y", Duration.ofSeconds(1)));
        wrong("NaN has no form", () -> CLIENT.ask("/attention", given("Q", Double.NaN)));
        for (Object beyond : List.of((1L << 53) + 1, BigInteger.TWO.pow(53).add(BigInteger.ONE), new Tensor(new long[] {(1L << 53) + 1}, 1)))
            wrong("9007199254740993 is an integer beyond 2^53", () -> CLIENT.ask("/attention", given("past_length", beyond)));
        refused(422, "heads must be", () -> CLIENT.ask("/attention", given("heads", 1L << 53)));
        refused(422, "heads must be", () -> CLIENT.ask("/attention", given("heads", BigInteger.TWO.pow(53))));
        check(float64(V).toString().equals("[5, 2] " + V[0][0] + " " + V[0][1] + " " + V[1][0] + " " + V[1][1] + " " + V[2][0] + " " + V[2][1]
            + " " + V[3][0] + " " + V[3][1] + " ..."), float64(V));
        wrong("does not fit the shape [2, 3]", () -> new Tensor(new float[1], 2, 3));
        wrong("is a short[], not a float[], double[], long[], int[] or boolean[]", () -> new Tensor(new short[1], 1));
        for (List<?> ragged : List.of(List.of(List.of(1, 2), List.of(3)), List.of(List.of(1, 2), List.of(3), List.of(4, 5, 6)),
                List.of(List.of(1), 2), List.of(1, List.of(2))))
            wrong("the rows of a tensor differ", () -> Tensor.of(ragged));
        wrong("is no number", () -> Tensor.of(List.of("1")));
    }

    private static Map<String, Object> at(String kind, Duration timeout) throws Exception {
        return new Client(System.getenv("ATTENTIOND_STUB_URL") + "/" + kind, "secret\n", timeout).ask("/attention", given());
    }

    private static Map<String, Tensor> tensorsAt(String kind) throws Exception {
        return new Client(System.getenv("ATTENTIOND_STUB_URL") + "/" + kind).tensors("/attention", tensors(), Map.of());
    }

    private static void testStub() throws Exception {
        Duration minute = Duration.ofMinutes(1);
        double[][] output = attention((i, j) -> true)[2];
        for (String kind : List.of("busy", "late", "key", "chunked", "open", "open", "early"))
            near(Tensor.of(at(kind, Duration.ofSeconds(5)).get("output")), output, 1e-5);
        Client again = new Client(System.getenv("ATTENTIOND_STUB_URL") + "/reused");
        for (int i = 0; i < 2; i++) near(Tensor.of(again.ask("/attention", given()).get("output")), output, 1e-5);
        near(tensorsAt("chunked").get("output"), output, 1e-5);
        Client order = new Client(System.getenv("ATTENTIOND_STUB_URL") + "/order");
        order.ask("/attention", given("causal", true, "scale", 0.5));
        order.tensors("/attention", tensors(), Map.of("causal", true));
        Client large = new Client(System.getenv("ATTENTIOND_STUB_URL") + "/large", null, minute, 1 << 20);
        refused(200, "the answer has more than 1048576 bytes", () -> large.ask("/attention", given()));
        refused(503, "too much work waits", () -> at("always", minute));
        refused(503, "too much work waits", () -> at("lasting", minute));
        refused(502, "no problem document", () -> at("html", minute));
        refused(200, "cannot be read", () -> at("html", minute));
        for (String kind : List.of("silent", "drip", "drip", "drip")) refused(0, "timed out", () -> at(kind, Duration.ofMillis(500)));
        Client slow = new Client(System.getenv("ATTENTIOND_STUB_URL") + "/slow", null, Duration.ofMillis(500));
        Map<String, Tensor> lengthy = Map.of("X", new Tensor(new float[1 << 23], 1 << 17, 64));
        refused(0, "timed out", () -> slow.tensors("/attention", lengthy, Map.of()));
        refused(0, "no answer", () -> at("closed", minute));
        refused(0, "no answer", () -> at("cut", minute));
        refused(0, "no answer", () -> tensorsAt("cut"));
        refused(200, "output has the type BF16", () -> tensorsAt("half"));
        refused(302, "no problem document", () -> at("moved", minute));
        refused(307, "no problem document", () -> at("moved", minute));
        refused(200, "cannot be read", () -> at("deep", minute));
        refused(422, "no problem document", () -> at("deep", minute));
        refused(200, "cannot be read", () -> tensorsAt("deep"));
        check(refused(422, "no problem document", () -> at("lists", minute)).pointer.isEmpty(), "a pointer is no text");
        for (int i = 0; i < 15; i++) refused(200, "cannot be read", () -> tensorsAt("broken"));
    }

    public static void main(String[] arguments) throws Exception {
        testJson();
        testComparisonOfBytes();
        testTensors();
        testWholeNumbersAndOptions();
        testErrors();
        if (System.getenv("ATTENTIOND_STUB_URL") != null) testStub();
        System.out.println("all tests of the client in Java pass");
    }
}
