// kernel.go writes kernel.safetensors for a kernel in Go 1.19 or later: go run kernel.go
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"log"
	"os"
)

// A tensor has a name such as expected.lse. Its numbers are in the order of the rows.
type tensor struct {
	name  string
	shape []int
	data  []float64
}

// save writes tensors and options into a file of safetensors.
func save(path string, options map[string]string, tensors []tensor) error {
	described := map[string]any{"__metadata__": options}
	var numbers bytes.Buffer
	for _, t := range tensors {
		begin := numbers.Len()
		binary.Write(&numbers, binary.LittleEndian, t.data)
		offsets := []int{begin, numbers.Len()}
		described[t.name] = map[string]any{"dtype": "F64", "shape": t.shape, "data_offsets": offsets}
	}
	head, err := json.Marshal(described)
	if err != nil {
		return err
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return os.WriteFile(path, append(append(file, head...), numbers.Bytes()...), 0o644)
}

func main() {
	// One query and two keys, and what a kernel made of them. Put your slices in their place.
	const g = 1.060660171779821
	err := save("kernel.safetensors", map[string]string{
		"dtype":              "float64",
		"return":             `["comparison"]`,
		"fail_on_difference": "true",
	}, []tensor{
		{"Q", []int{1, 2}, []float64{1, 1}},
		{"K", []int{2, 2}, []float64{1, 0, 0, 1}},
		{"V", []int{2, 2}, []float64{5, 6, 7, 8}},
		{"grad_output", []int{1, 2}, []float64{1, 2}},
		{"expected.output", []int{1, 2}, []float64{6, 7}},
		{"expected.lse", []int{1}, []float64{1.400253961746493}},
		{"expected.grad_Q", []int{1, 2}, []float64{-g, g}},
		{"expected.grad_K", []int{2, 2}, []float64{-g, -g, g, g}},
		{"expected.grad_V", []int{2, 2}, []float64{0.5, 1, 0.5, 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
}
