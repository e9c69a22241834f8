// Attention.java asks attentiond for attention. It needs Java 17 or later, and no library.
//
//     java Attention.java [http://127.0.0.1:8080]
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Attention {
    /** A matrix, or a stack of matrices. Its numbers are in the order of the rows. */
    record Tensor(String name, List<Integer> shape, float... data) {}

    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final String LENGTH = "Inference-Header-Content-Length";

    private static HttpResponse<byte[]> send(HttpRequest.Builder request) throws IOException, InterruptedException {
        HttpResponse<byte[]> response = CLIENT.send(request.build(), BodyHandlers.ofByteArray());
        if (response.statusCode() != 200) {
            String text = new String(response.body(), StandardCharsets.UTF_8);
            throw new IOException(response.statusCode() + " " + text.strip());
        }
        return response;
    }

    /** Sends a request as JSON, and returns the answer as JSON. */
    static String ask(String url, String json) throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url))
            .header("Content-Type", "application/json").POST(BodyPublishers.ofString(json));
        return new String(send(request).body(), StandardCharsets.UTF_8);
    }

    /** Sends tensors as bytes, and returns these outputs by their names. No number becomes text. */
    static Map<String, float[]> infer(String url, String options, List<String> outputs, Tensor... inputs)
            throws IOException, InterruptedException {
        int size = Arrays.stream(inputs).mapToInt(input -> 4 * input.data().length).sum();
        ByteBuffer numbers = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        List<String> described = new ArrayList<>();
        for (Tensor input : inputs) {
            for (float number : input.data()) numbers.putFloat(number);
            described.add("""
                {"name": "%s", "datatype": "FP32", "shape": %s, "parameters": {"binary_data_size": %d}}"""
                .formatted(input.name(), input.shape(), 4 * input.data().length));
        }
        List<String> wanted = outputs.stream().map("""
            {"name": "%s", "parameters": {"binary_data": true}}"""::formatted).toList();
        // A list of texts prints itself as JSON wants it: in brackets, with commas.
        byte[] head = "{\"inputs\": %s, \"outputs\": %s, \"parameters\": %s}"
            .formatted(described, wanted, options).getBytes(StandardCharsets.UTF_8);
        byte[] body = ByteBuffer.allocate(head.length + size).put(head).put(numbers.flip()).array();

        HttpResponse<byte[]> response = send(HttpRequest.newBuilder(URI.create(url))
            .header("Content-Type", "application/octet-stream").header(LENGTH, String.valueOf(head.length))
            .POST(BodyPublishers.ofByteArray(body)));
        int at = (int) response.headers().firstValueAsLong(LENGTH).orElseThrow();
        ByteBuffer answer = ByteBuffer.wrap(response.body()).order(ByteOrder.LITTLE_ENDIAN);
        // The JSON describes the outputs in the order of their bytes.
        Matcher output = Pattern
            .compile("\"name\":\"([^\"]+)\",\"datatype\":\"([^\"]+)\".*?\"binary_data_size\":(\\d+)")
            .matcher(new String(answer.array(), 0, at, StandardCharsets.UTF_8));
        Map<String, float[]> results = new LinkedHashMap<>();
        while (output.find()) {
            if (!output.group(2).equals("FP32"))
                throw new IOException(output.group(1) + " is " + output.group(2) + "; this client reads FP32 only");
            float[] result = new float[Integer.parseInt(output.group(3)) / 4];
            answer.position(at).asFloatBuffer().get(result);
            results.put(output.group(1), result);
            at += 4 * result.length;
        }
        return results;
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        String base = arguments.length > 0 ? arguments[0] : "http://127.0.0.1:8080";

        System.out.println("JSON: " + ask(base + "/attention", """
            {"Q": [[1, 0, 2], [0, 3, 1]],
             "K": [[1, 1, 0], [0, 2, 1], [3, 0, 1], [1, 0, 1]],
             "V": [[1, 2], [3, 4], [5, 6], [7, 8]]}""").strip());

        String url = base + "/v2/models/attention/infer";
        Tensor q = new Tensor("Q", List.of(2, 3), 1, 0, 2, 0, 3, 1);
        Tensor k = new Tensor("K", List.of(4, 3), 1, 1, 0, 0, 2, 1, 3, 0, 1, 1, 0, 1);
        Tensor v = new Tensor("V", List.of(4, 2), 1, 2, 3, 4, 5, 6, 7, 8);
        infer(url, "{\"causal\": true}", List.of("output", "weights"), q, k, v)
            .forEach((name, numbers) -> System.out.println("binary " + name + ": " + Arrays.toString(numbers)));

        try {
            infer(url, "{}", List.of("output"), q, new Tensor("K", List.of(6, 2), k.data()), v);
        } catch (IOException error) {
            System.out.println("error: " + error.getMessage());
        }
    }
}
