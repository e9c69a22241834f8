// Ask sends the call of the first notebook, the same call with drawn matrices, and a bad request. It prints what
// check.py checks.
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.JSON;
import org.openapitools.client.api.AttentionApi;
import org.openapitools.client.model.*;

public class Ask {
    public static void main(String[] arguments) throws ApiException {
        AttentionApi api = new AttentionApi(new ApiClient().setBasePath(arguments[0]));
        Map<String, Object> said = new LinkedHashMap<>();

        AttentionResult given = api.computeAttention(new AttentionRequest()
            .Q(new double[][] {{2, 0, 2}, {2, 0, 0}, {4, 0, 2}, {2, 1, 2}})
            .K(new double[][] {{2, 2, 2}, {0, 2, 1}, {2, 4, 3}, {0, 1, 1}})
            .V(new double[][] {{1, 1, 0}, {0, 1, 1}, {1, 2, 1}, {0, 0, 0}}), null);
        said.put("output", given.getOutput());
        said.put("weights", given.getWeights());

        DrawnMatrix w = new DrawnMatrix().random(DrawnMatrix.RandomEnum.RANDINT).high(3.0).shape(List.of(3, 3));
        ProjectedAttentionResult drawn = api.computeSelfAttention(new ProjectedAttentionRequest()
            .random(new Random().generator(Random.GeneratorEnum.NUMPY).seed(42L))
            .X(List.of(List.of(1, 0, 0), List.of(0, 1, 0), List.of(1, 1, 0), List.of(0, 0, 1)))
            .W_Q(w).W_K(w).W_V(w)
            ._return(List.of(ProjectedAttentionRequest.ReturnEnum.OUTPUT)), null);
        said.put("drawn", drawn.getOutput());

        try {
            api.computeAttention(new AttentionRequest().Q(List.of(List.of(1, 2))).K(List.of(List.of(1, 2, 3)))
                .V(List.of(List.of(1))), null);
        } catch (ApiException error) {
            Problem problem = JSON.deserialize(error.getResponseBody(), Problem.class);
            said.put("status", problem.getStatus());
            said.put("detail", problem.getDetail());
            said.put("pointer", problem.getPointer());
        }
        System.out.println(JSON.serialize(said));
    }
}
