// attention.go asks attentiond for attention. It needs Go 1.18 or later, and no package.
//
//	go run attention.go [http://127.0.0.1:8080]
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
)

const lengthHeader = "Inference-Header-Content-Length"

// A Tensor is a matrix, or a stack of matrices. Its numbers are in the order of the rows.
type Tensor struct {
	Shape []int
	Data  []float32
}

// post sends a body. Unless the status is 200, the error has the status and the text of the service.
func post(url string, header http.Header, body []byte) (http.Header, []byte, error) {
	request, err := http.NewRequest("POST", url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		var problem struct{ Detail, Error string } // /v2 says error, the other endpoints say detail
		json.Unmarshal(answer, &problem)
		err = fmt.Errorf("%d %s%s", response.StatusCode, problem.Detail, problem.Error)
	}
	return response.Header, answer, err
}

// ask sends a request as JSON, and decodes the answer.
func ask(url string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, said, err := post(url, http.Header{"Content-Type": {"application/json"}}, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(said, answer)
}

// infer sends tensors as bytes, and returns the results by their names. No number becomes text.
func infer(url string, inputs map[string]Tensor, options map[string]any) (map[string]Tensor, error) {
	type tensor struct {
		Name       string         `json:"name"`
		Datatype   string         `json:"datatype"`
		Shape      []int          `json:"shape"`
		Parameters map[string]int `json:"parameters"`
	}
	var tensors []tensor
	var numbers bytes.Buffer
	for name, input := range inputs {
		size := map[string]int{"binary_data_size": 4 * len(input.Data)}
		tensors = append(tensors, tensor{name, "FP32", input.Shape, size})
		binary.Write(&numbers, binary.LittleEndian, input.Data)
	}
	parameters := map[string]any{"binary_data_output": true}
	for name, value := range options {
		parameters[name] = value
	}
	head, err := json.Marshal(map[string]any{"inputs": tensors, "parameters": parameters})
	if err != nil {
		return nil, err
	}
	header, answer, err := post(url, http.Header{
		"Content-Type": {"application/octet-stream"},
		lengthHeader:   {strconv.Itoa(len(head))},
	}, append(head, numbers.Bytes()...))
	if err != nil {
		return nil, err
	}

	length, err := strconv.Atoi(header.Get(lengthHeader))
	if err != nil || length > len(answer) {
		return nil, fmt.Errorf("the answer has no binary tensors")
	}
	var described struct{ Outputs []tensor }
	if err := json.Unmarshal(answer[:length], &described); err != nil {
		return nil, err
	}
	rest := bytes.NewReader(answer[length:])
	results := map[string]Tensor{}
	for _, output := range described.Outputs {
		if output.Datatype != "FP32" {
			return nil, fmt.Errorf("%s is %s; this client reads FP32 only", output.Name, output.Datatype)
		}
		result := Tensor{output.Shape, make([]float32, output.Parameters["binary_data_size"]/4)}
		if err := binary.Read(rest, binary.LittleEndian, result.Data); err != nil {
			return nil, err
		}
		results[output.Name] = result
	}
	return results, nil
}

func main() {
	base := "http://127.0.0.1:8080"
	if len(os.Args) > 1 {
		base = os.Args[1]
	}

	var answer struct{ Output, Weights [][]float64 }
	err := ask(base+"/attention", map[string]any{
		"Q": [][]float64{{1, 0, 2}, {0, 3, 1}},
		"K": [][]float64{{1, 1, 0}, {0, 2, 1}, {3, 0, 1}, {1, 0, 1}},
		"V": [][]float64{{1, 2}, {3, 4}, {5, 6}, {7, 8}},
	}, &answer)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("JSON output:", answer.Output)
	fmt.Println("JSON weights:", answer.Weights)

	url := base + "/v2/models/attention/infer"
	inputs := map[string]Tensor{
		"Q": {[]int{2, 3}, []float32{1, 0, 2, 0, 3, 1}},
		"K": {[]int{4, 3}, []float32{1, 1, 0, 0, 2, 1, 3, 0, 1, 1, 0, 1}},
		"V": {[]int{4, 2}, []float32{1, 2, 3, 4, 5, 6, 7, 8}},
	}
	results, err := infer(url, inputs, map[string]any{"causal": true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("binary output:", results["output"].Data)
	fmt.Println("binary weights:", results["weights"].Data)

	inputs["K"] = Tensor{[]int{6, 2}, inputs["K"].Data}
	_, err = infer(url, inputs, nil)
	fmt.Println("error:", err)
}
