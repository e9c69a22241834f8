// attentiond_test.go tests the client against the daemon at $ATTENTIOND_URL: ATTENTIOND_URL=http://127.0.0.1:8080 go test
// It tests tries, time-outs and broken answers against tests/clients/own/stub.py, if $ATTENTIOND_STUB_URL has its address.
package attentiond

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"
)

var (
	client  = New(os.Getenv("ATTENTIOND_URL") + "/")
	ctx     = context.Background()
	q, k, v = matrix(3, 4, 1), matrix(5, 4, 20), matrix(5, 2, 50)
	names   = []string{"masked_scores", "weights", "output"}
)

// matrix returns numbers that float32 holds exactly.
func matrix(rows, columns, seed int) [][]float64 {
	m := make([][]float64, rows)
	for i := range m {
		for j := 0; j < columns; j++ {
			m[i] = append(m[i], math.Floor(math.Sin(float64(seed+i*columns+j))*1024)/512)
		}
	}
	return m
}

func masked(i, j int) bool { return (i+j)%3 != 0 }
func all(i, j int) bool    { return true }

// attention returns the masked scores, the weights and the output, where a query i sees a key j if sees(i, j).
func attention(sees func(i, j int) bool) [][][]float64 {
	scores, weights, output := matrix(3, 5, 0), matrix(3, 5, 0), matrix(3, 2, 0)
	for i := range q {
		sum := 0.0
		for j := range k {
			scores[i][j] = math.Inf(-1)
			if sees(i, j) {
				scores[i][j] = 0
				for c := range q[i] {
					scores[i][j] += q[i][c] * k[j][c] / 2
				}
			}
			sum += math.Exp(scores[i][j])
		}
		output[i] = []float64{0, 0}
		for j := range k {
			weights[i][j] = math.Exp(scores[i][j]) / sum
			output[i][0] += weights[i][j] * v[j][0]
			output[i][1] += weights[i][j] * v[j][1]
		}
	}
	return [][][]float64{scores, weights, output}
}

func near(t *testing.T, got Tensor, expected [][]float64, bound float64) {
	t.Helper()
	if !reflect.DeepEqual(got.Shape, []int{len(expected), len(expected[0])}) {
		t.Fatalf("the shape is %v", got.Shape)
	}
	for i, number := range got.Float64s() {
		right := expected[i/len(expected[0])][i%len(expected[0])]
		if number != right && !(math.Abs(number-right) <= bound) {
			t.Fatalf("%v is not %v", number, right)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, status int, text string) *Error {
	t.Helper()
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Status != status || !strings.Contains(refusal.Detail, text) {
		t.Fatalf("the error is %v, not %d and %s", err, status, text)
	}
	return refusal
}

func float32s(rows [][]float64) Tensor {
	var data []float32
	for _, row := range rows {
		for _, number := range row {
			data = append(data, float32(number))
		}
	}
	return Tensor{[]int{len(rows), len(rows[0])}, data}
}

func float64s(rows [][]float64) Tensor {
	tensor := float32s(rows)
	return Tensor{tensor.Shape, tensor.Float64s()}
}

func mask() Tensor {
	var data []bool
	for i := 0; i < 15; i++ {
		data = append(data, masked(i/5, i%5))
	}
	return Tensor{[]int{3, 5}, data}
}

func given() map[string]any { return map[string]any{"Q": q, "K": k, "V": v} }

func tensors() map[string]Tensor {
	return map[string]Tensor{"Q": float32s(q), "K": float32s(k), "V": float32s(v)}
}

func TestJSON(t *testing.T) {
	request := given()
	request["causal"], request["return"] = true, names
	var answer map[string]Tensor
	check(t, client.Ask(ctx, "/attention", request, &answer))
	for i, expected := range attention(func(i, j int) bool { return j <= i }) {
		near(t, answer[names[i]], expected, 1e-5)
	}

	bias := Tensor{[]int{3, 5}, make([]float64, 15)}
	for i := range bias.Data.([]float64) {
		if !masked(i/5, i%5) {
			bias.Data.([]float64)[i] = math.Inf(-1)
		}
	}
	var typed struct{ Weights Tensor }
	for _, forbidden := range []map[string]any{{"bias": bias}, {"mask": mask()}} {
		request := struct {
			Q, K, V Tensor
			Bias    any `json:"bias"`
			Mask    any `json:"mask"`
		}{float32s(q), float64s(k), float32s(v), forbidden["bias"], forbidden["mask"]}
		check(t, client.Ask(ctx, "/attention", request, &typed))
		near(t, typed.Weights, attention(masked)[1], 1e-5)
	}
	// A mask that sees nothing is no mask of the number 0 everywhere, which is refused.
	blind := tensors()
	blind["mask"] = Tensor{[]int{3, 5}, make([]bool, 15)}
	results, err := client.Tensors(ctx, "/attention", blind, nil)
	check(t, err)
	check(t, (&Client{BaseURL: os.Getenv("ATTENTIOND_URL")}).Ask(ctx, "/attention", blind, &typed))
	if !reflect.DeepEqual(typed.Weights.Float64s(), results["weights"].Float64s()) {
		t.Fatalf("a mask that sees nothing has the weights %v and %v", typed.Weights, results["weights"])
	}
	var version struct{ Version string }
	check(t, client.Ask(ctx, "/version", nil, &version))
	if version.Version == "" {
		t.Fatal("/version says no version")
	}
}

func TestComparisonOfBytes(t *testing.T) {
	questions, output := tensors(), float32s(attention(all)[2])
	questions["expected.output"] = output
	for _, right := range []bool{true, false} {
		comparison, err := client.Compare(ctx, "/attention", questions, map[string]any{"scale": 0.5})
		check(t, err)
		if comparison["within_tolerance"] != right {
			t.Fatalf("the comparison is %v, and the output is right: %v", comparison, right)
		}
		output.Data.([]float32)[0]++
	}
}

func TestTensors(t *testing.T) {
	for _, kind := range []struct {
		of    func([][]float64) Tensor
		data  any
		bound float64
	}{{float32s, []float32{}, 1e-5}, {float64s, []float64{}, 1e-13}} {
		questions := map[string]Tensor{"Q": kind.of(q), "K": kind.of(k), "V": kind.of(v), "mask": mask()}
		results, err := client.Tensors(ctx, "/attention", questions, map[string]any{"return": names})
		check(t, err)
		for i, expected := range attention(masked) {
			near(t, results[names[i]], expected, kind.bound)
			if reflect.TypeOf(results[names[i]].Data) != reflect.TypeOf(kind.data) {
				t.Fatalf("the data is %T", results[names[i]].Data)
			}
		}
	}
}

func TestWholeNumbersAndOptions(t *testing.T) {
	questions := tensors()
	questions["lengths"] = Tensor{[]int{1}, []int64{4}}
	options := map[string]any{"causal": "bottom_right", "window": []int{2, 0}, "top_k": 2, "return": []string{"weights", "top_k", "statistics"}}
	results, err := client.Tensors(ctx, "/attention", questions, options)
	check(t, err)
	weights := attention(func(i, j int) bool { return i-1 <= j && j <= i+1 && j < 4 })[1]
	near(t, results["weights"], weights, 1e-5)
	var best []int64
	for _, row := range weights {
		order := []int64{0, 1, 2, 3, 4}
		sort.SliceStable(order, func(a, b int) bool { return row[order[a]] > row[order[b]] })
		best = append(best, order[:2]...)
	}
	if got := results["top_k.indices"]; !reflect.DeepEqual(got, Tensor{[]int{3, 2}, best}) {
		t.Fatalf("top_k.indices is %v, not %v", got, best)
	}
	if got := results["statistics.variance.Q"]; len(got.Shape) != 0 || len(got.Float64s()) != 1 {
		t.Fatalf("a number is %v", got)
	}
}

type inner struct{ Past int64 }
type text string

func TestErrors(t *testing.T) {
	request, questions := given(), tensors()
	request["K"], questions["K"] = [][]float64{{1}}, Tensor{[]int{1, 1}, []float32{1}}
	_, err := client.Tensors(ctx, "/attention", questions, nil)
	for _, err := range []error{client.Ask(ctx, "/attention", request, nil), err} {
		refusal := refused(t, err, 422, "K has 1 column but Q has 4")
		if refusal.Pointer != "/K" || refusal.RequestID == "" || refusal.Error() != "422 "+refusal.Detail+" /K" {
			t.Fatalf("the error is %#v", refusal)
		}
	}
	refused(t, client.Ask(ctx, "/v2/models/attention/infer", struct{}{}, nil), 422, "inputs is missing")
	refused(t, client.Ask(ctx, "/nothing", nil, nil), 404, "there is nothing at /nothing")
	refused(t, New("http://127.0.0.1:1").Ask(ctx, "/attention", request, nil), 0, "no answer from http://127.0.0.1:1")
	refused(t, New("nothing:// ").Ask(ctx, "/attention", request, nil), 0, "invalid character")
	for _, wrong := range []struct {
		tensor Tensor
		text   string
	}{
		{Tensor{[]int{2, 3}, []float32{1}}, "the data of a tensor has the length 1, which does not fit the shape [2 3]"},
		{Tensor{[]int{-1, -1}, []float32{1}}, "the data of a tensor has the length 1, which does not fit the shape [-1 -1]"},
		{Tensor{[]int{1}, []int{1}}, "the data of a tensor is a []int, not a []float32, []float64, []int64, "},
		{Tensor{[]int{1}, nil}, "the data of a tensor is a <nil>, not a []float32"},
	} {
		_, err := client.Tensors(ctx, "/attention", map[string]Tensor{"Q": wrong.tensor}, nil)
		refused(t, err, 0, "Q: "+wrong.text)
		refused(t, client.Ask(ctx, "/attention", wrong.tensor, nil), 0, wrong.text)
	}
	_, err = client.Tensors(ctx, "/attention", questions, map[string]any{"scale": math.NaN()})
	refused(t, err, 0, "NaN")
	for _, beyond := range []any{1<<53 + 1, int64(-1<<53 - 1), uint64(1<<53 + 1), Tensor{[]int{1}, []int64{1<<53 + 1}}, &Tensor{[]int{1}, []int64{1<<53 + 1}}, [][]int{{1<<53 + 1}}, json.Number("9007199254740993")} {
		refused(t, client.Ask(ctx, "/attention", map[string]any{"Q": q, "past_length": beyond}, nil), 0, "9007199254740993 is an integer beyond 2^53")
		_, err = client.Tensors(ctx, "/attention", questions, map[string]any{"past_length": beyond})
		refused(t, err, 0, "9007199254740993 is an integer beyond 2^53")
	}
	hidden := struct {
		X       [][]float64
		private int64
		Skipped int64     `json:"-"`
		When    time.Time `json:"-"`
	}{q, 1<<53 + 1, 1<<53 + 1, time.Now()}
	_ = hidden.private
	refused(t, client.Ask(ctx, "/attention", struct{ inner }{inner{1<<53 + 1}}, nil), 0, "9007199254740993 is an integer beyond 2^53")
	check(t, client.Ask(ctx, "/attention", struct {
		X [][]float64
		*text
	}{q, new(text)}, &struct{}{}))
	refused(t, client.Ask(ctx, "/attention", struct{ *inner }{&inner{1<<53 + 1}}, nil), 0, "9007199254740993 is an integer beyond 2^53")
	check(t, client.Ask(ctx, "/attention", hidden, &struct{}{}))
	for _, number := range []json.Number{"0.9007199254740993", "9007199254740992e-16", ""} { // "" is 0
		check(t, client.Ask(ctx, "/attention", map[string]any{"X": q, "scale": number}, &struct{}{}))
	}
	check(t, (&Client{BaseURL: os.Getenv("ATTENTIOND_URL"), MaxAnswer: math.MaxInt64}).Ask(ctx, "/version", nil, &struct{}{}))
	refused(t, client.Ask(ctx, "/attention", map[string]any{"X": q, "heads": 1 << 53}, nil), 422, "heads must be")
	var ragged Tensor
	for _, text := range []string{`[[1, 2], [3]]`, `[[1, 2], [3], [4, 5, 6]]`, `[[1], 2]`, `[1, [2]]`, `["1"]`, `{}`, `true`} {
		if ragged.UnmarshalJSON([]byte(text)) == nil {
			t.Fatalf("%s becomes a tensor", text)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := client.Ask(gone, "/attention", given(), nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error of a cancelled call is %v", err)
	}
	busy := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Retry-After", "30")
		answer.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	short, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	err = New(busy.URL).Ask(short, "/attention", given(), nil)
	refused(t, err, 503, "Service Unavailable (context deadline exceeded before the next try)")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the error of a wait that ended is %v", err)
	}
}

func TestStub(t *testing.T) {
	stub := os.Getenv("ATTENTIOND_STUB_URL")
	if stub == "" {
		t.Skip("there is no stub")
	}
	at := func(kind string, timeout time.Duration) (Tensor, error) {
		c := New(stub + "/" + kind)
		c.APIKey, c.Timeout = "secret\n", timeout
		var answer struct{ Output Tensor }
		err := c.Ask(ctx, "/attention", given(), &answer)
		return answer.Output, err
	}
	tensorsAt := func(kind string) (Tensor, error) {
		results, err := New(stub+"/"+kind).Tensors(ctx, "/attention", tensors(), nil)
		return results["output"], err
	}
	order := New(stub + "/order")
	request := given()
	request["window"], request["causal"], request["scale"] = []int{9, 9}, true, 0.5
	check(t, order.Ask(ctx, "/attention", request, &struct{}{}))
	_, err := order.Tensors(ctx, "/attention", tensors(), map[string]any{"causal": true})
	check(t, err)
	large := &Client{BaseURL: stub + "/large", MaxAnswer: 1 << 20}
	refused(t, large.Ask(ctx, "/attention", given(), nil), 200, "the answer has more than 1048576 bytes")
	expected := attention(all)[2]
	for _, kind := range []string{"busy", "late", "key", "chunked", "reused", "reused", "open", "open", "early"} {
		output, err := at(kind, 5*time.Second)
		check(t, err)
		near(t, output, expected, 1e-5)
	}
	output, err := tensorsAt("chunked")
	check(t, err)
	near(t, output, expected, 1e-5)
	for _, wrong := range []struct {
		kind   string
		status int
		text   string
	}{{"always", 503, "too much work waits"}, {"lasting", 503, "too much work waits"}, {"html", 502, "Bad Gateway"}, {"html", 200, "cannot be read"}, {"closed", 0, "no answer"}, {"cut", 0, "no answer"},
		{"moved", 302, "Found"}, {"moved", 307, "Temporary Redirect"}, {"deep", 200, "cannot be read"}, {"deep", 422, "Unprocessable"}, {"lists", 422, "Unprocessable"}} {
		_, err := at(wrong.kind, time.Minute)
		refused(t, err, wrong.status, wrong.text)
	}
	for _, kind := range []string{"silent", "drip", "drip", "drip"} {
		_, err := at(kind, time.Second/2)
		refused(t, err, 0, "deadline exceeded")
	}
	slow := &Client{BaseURL: stub + "/slow", Timeout: time.Second / 2}
	long := Tensor{[]int{1 << 17, 64}, make([]float32, 1<<23)}
	_, err = slow.Tensors(ctx, "/attention", map[string]Tensor{"X": long}, nil)
	refused(t, err, 0, "deadline exceeded")
	_, err = tensorsAt("cut")
	refused(t, err, 0, "no answer")
	_, err = tensorsAt("half")
	refused(t, err, 200, "output has the type BF16")
	_, err = tensorsAt("deep")
	refused(t, err, 200, "cannot be read")
	for i := 0; i < 15; i++ {
		_, err := tensorsAt("broken")
		refused(t, err, 200, "cannot be read")
	}
}
