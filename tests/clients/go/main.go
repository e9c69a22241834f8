// main sends the call of the first notebook, the same call with drawn matrices, and a bad request. It prints what
// check.py checks.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
)

func main() {
	client, err := NewClientWithResponses(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	given, err := client.ComputeAttentionWithResponse(ctx, nil, AttentionRequest{
		Q: [][]float64{{2, 0, 2}, {2, 0, 0}, {4, 0, 2}, {2, 1, 2}},
		K: [][]float64{{2, 2, 2}, {0, 2, 1}, {2, 4, 3}, {0, 1, 1}},
		V: [][]float64{{1, 1, 0}, {0, 1, 1}, {1, 2, 1}, {0, 0, 0}},
	})
	if err != nil || given.JSON200 == nil {
		log.Fatal(err, string(given.Body))
	}
	var results struct{ Output, Weights [][]float64 }
	if err := json.Unmarshal(given.Body, &results); err != nil {
		log.Fatal(err)
	}

	high := 3.0
	w := DrawnMatrix{Random: Randint, High: &high, Shape: []int{3, 3}}
	drawn, err := client.ComputeSelfAttentionWithResponse(ctx, nil, ProjectedAttentionRequest{
		Random: &Random{Generator: RandomGeneratorNumpy, Seed: 42},
		X:      [][]float64{{1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 0, 1}},
		WQ:     w, WK: w, WV: w,
		Return: &[]ProjectedAttentionRequestReturn{ProjectedAttentionRequestReturnOutput},
	})
	if err != nil || drawn.JSON200 == nil {
		log.Fatal(err, string(drawn.Body))
	}

	bad, err := client.ComputeAttentionWithResponse(ctx, nil, AttentionRequest{
		Q: [][]float64{{1, 2}}, K: [][]float64{{1, 2, 3}}, V: [][]float64{{1}},
	})
	if err != nil || bad.ApplicationproblemJSON422 == nil {
		log.Fatal(err, string(bad.Body))
	}
	problem := bad.ApplicationproblemJSON422
	answer, _ := json.Marshal(map[string]any{
		"output": results.Output, "weights": results.Weights, "drawn": drawn.JSON200.Output,
		"status": problem.Status, "detail": problem.Detail, "pointer": problem.Pointer,
	})
	fmt.Println(string(answer))
}
