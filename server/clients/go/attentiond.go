// Package attentiond is a client of attentiond, the service that computes attention. It needs Go 1.18 or later, and no package.
package attentiond

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/http"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
)

const (
	tries       = 5
	longestWait = 30 // seconds between two tries, whatever the service says
	safetensors = "application/vnd.safetensors"
	plain       = "application/json"
)

// A Client has the address of a service. Set its other members before the first call; then goroutines may share it.
type Client struct {
	BaseURL string
	APIKey  string        // "" means none
	Timeout time.Duration // of one try; 0 means 60 seconds
	HTTP    *http.Client  // for example with certificates of your own; nil means http.DefaultClient

	MaxAnswer int64 // the bytes that an answer may have; 0 means 1 GiB
}

// New returns a client with the defaults.
func New(baseURL string) *Client { return &Client{BaseURL: baseURL} }

// An Error is what Ask and Tensors return if the service refused a request or did not answer, or if the request is wrong and was
// not sent.
type Error struct {
	Status    int    // of HTTP, or 0 without an answer
	Detail    string // what is wrong
	Pointer   string // a JSON pointer to the wrong part of the request, or ""
	RequestID string // the log of the service has it, too
	Err       error  // why no answer came, why it cannot be read, or how the context ended before the next try
}

func (e *Error) Error() string {
	text := e.Detail
	if e.Status != 0 {
		text = fmt.Sprint(e.Status, " ", text)
	}
	return strings.TrimSpace(text + " " + e.Pointer)
}

func (e *Error) Unwrap() error { return e.Err }

// Ask sends a request as JSON, or GET if the request is nil, and decodes the answer into what answer points to. Go reads null
// into a float64 as 0, but null stands for −∞: read numbers that may be −∞ into a Tensor. An integer beyond 2^53 is an error.
func (c *Client) Ask(ctx context.Context, path string, request, answer any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = encode(request); err != nil {
			return unsent(err)
		}
		body = optionsFirst(body)
	}
	said, err := c.send(ctx, path, plain, plain, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(said, answer); err != nil {
		return c.unreadable(path, err)
	}
	return nil
}

// Tensors sends tensors as bytes, and returns the results by their names. A comparison and lists of words need Ask.
func (c *Client) Tensors(ctx context.Context, path string, tensors map[string]Tensor, options map[string]any) (map[string]Tensor, error) {
	body, err := pack(tensors, options)
	if err != nil {
		return nil, unsent(err)
	}
	said, err := c.send(ctx, path, safetensors, safetensors, body)
	if err != nil {
		return nil, err
	}
	results, err := unpack(said)
	if err != nil {
		return nil, c.unreadable(path, err)
	}
	return results, nil
}

// Compare sends tensors as bytes, with expected results such as expected.output, and returns the comparison.
func (c *Client) Compare(ctx context.Context, path string, tensors map[string]Tensor, options map[string]any) (map[string]any, error) {
	asked := map[string]any{"return": []string{"comparison"}}
	for name, value := range options {
		asked[name] = value
	}
	body, err := pack(tensors, asked)
	if err != nil {
		return nil, unsent(err)
	}
	said, err := c.send(ctx, path, safetensors, plain, body)
	if err != nil {
		return nil, err
	}
	var answer struct{ Comparison map[string]any }
	if err := json.Unmarshal(said, &answer); err != nil {
		return nil, c.unreadable(path, err)
	}
	return answer.Comparison, nil
}

func unsent(err error) *Error { return &Error{Detail: err.Error(), Err: err} }

func (c *Client) unreadable(path string, err error) *Error {
	return &Error{Status: 200, Detail: fmt.Sprintf("the answer of %s%s cannot be read: %v", c.BaseURL, path, err), Err: err}
}

func (c *Client) send(ctx context.Context, path, kind, accept string, body []byte) ([]byte, error) {
	for try := 1; ; try++ {
		answer, wait, refusal := c.sendOnce(ctx, path, kind, accept, body)
		if refusal == nil {
			return answer, nil
		} else if wait < 0 || try == tries {
			return nil, refusal
		}
		select {
		case <-ctx.Done():
			refusal.Err = ctx.Err()
			refusal.Detail += fmt.Sprintf(" (%v before the next try)", refusal.Err)
			return nil, refusal
		case <-time.After(wait):
		}
	}
}

// sendOnce also returns how long to wait before the next try, or a negative time if it would be in vain.
func (c *Client) sendOnce(ctx context.Context, path, kind, accept string, body []byte) ([]byte, time.Duration, *Error) {
	timeout, most, client := c.Timeout, c.MaxAnswer, *http.DefaultClient
	if timeout == 0 {
		timeout = 60 * time.Second
	}
	if most == 0 {
		most = 1 << 30
	} else if most == math.MaxInt64 {
		most-- // one more byte is read
	}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	// The request and its API key go to no other address.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	method := "POST"
	if body == nil {
		method = "GET"
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.BaseURL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, -1, unsent(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", kind)
		request.Header.Set("Accept", accept)
	}
	if key := strings.TrimSpace(c.APIKey); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	// net/http repeats a request if the service closes a connection that was used before, and if the request has this header. An
	// empty list is not sent.
	request.Header["Idempotency-Key"] = []string{}
	response, err := client.Do(request)
	var answer []byte
	if err == nil {
		defer response.Body.Close()
		answer, err = io.ReadAll(io.LimitReader(response.Body, most+1))
	}
	if err == nil && int64(len(answer)) > most {
		return nil, -1, &Error{Status: response.StatusCode, Detail: fmt.Sprintf("the answer has more than %d bytes", most)}
	}
	if err != nil {
		return nil, -1, &Error{Detail: fmt.Sprintf("no answer from %s: %v", c.BaseURL, err), Err: err}
	}
	if response.StatusCode == http.StatusOK {
		return answer, -1, nil
	}
	// Proxies say what they like in place of a problem document. /v2 says error, the other endpoints say detail.
	var said struct{ Detail, Error, Pointer string }
	if json.Unmarshal(answer, &said) != nil || said.Detail+said.Error == "" {
		said.Pointer = ""
		said.Detail = http.StatusText(response.StatusCode)
	}
	refusal := &Error{response.StatusCode, said.Detail + said.Error, said.Pointer, response.Header.Get("X-Request-Id"), nil}
	header := response.Header.Get("Retry-After") // given if the same request may succeed later
	if response.StatusCode != http.StatusServiceUnavailable || header == "" {
		return nil, -1, refusal
	}
	seconds, err := strconv.ParseUint(header, 10, 64)
	if seconds > longestWait {
		seconds = longestWait // also if it is out of the range of uint64
	} else if err != nil {
		seconds = 1 // it is a date
	}
	return nil, time.Duration(seconds) * time.Second, refusal
}

// encode returns a value in JSON, whose integers are exact.
func encode(value any) ([]byte, error) {
	text, err := json.Marshal(value) // this finds pointers that lead to themselves
	if err != nil {
		return nil, err
	}
	return text, exact(reflect.ValueOf(value))
}

// exact refuses integers beyond 2^53. The service reads numbers of JSON as float64, so they would lose digits.
func exact(value reflect.Value) error {
	switch value.Kind() {
	case reflect.Invalid: // nil
		return nil
	case reflect.Interface:
		return exact(value.Elem())
	default:
		if !value.CanInterface() {
			break
		}
		_, own := value.Interface().(json.Marshaler) // such as time.Time
		if own && value.Type() != reflect.TypeOf(Tensor{}) && value.Type() != reflect.TypeOf(&Tensor{}) {
			return nil
		}
	}
	switch value.Kind() {
	case reflect.Pointer:
		return exact(value.Elem())
	case reflect.Map:
		for _, key := range value.MapKeys() {
			if err := exact(value.MapIndex(key)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			field := value.Type().Field(i)
			kind := field.Type
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			inner := field.Anonymous && kind.Kind() == reflect.Struct // its fields are sent as those of this one
			if field.Tag.Get("json") == "-" || (!field.IsExported() && !inner) {
				continue
			}
			if err := exact(value.Field(i)); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		if kind := value.Type().Elem().Kind(); kind == reflect.Float32 || kind == reflect.Float64 {
			return nil
		}
		for i := 0; i < value.Len(); i++ {
			if err := exact(value.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Int, reflect.Int64:
		if x := value.Int(); x > 1<<53 || x < -1<<53 {
			return fmt.Errorf("%d is an integer beyond 2^53, which loses digits in JSON", x)
		}
	case reflect.Uint, reflect.Uint64:
		if x := value.Uint(); x > 1<<53 {
			return fmt.Errorf("%d is an integer beyond 2^53, which loses digits in JSON", x)
		}
	case reflect.String:
		if number, own := value.Interface().(json.Number); own {
			x, whole := new(big.Int).SetString(number.String(), 10)
			if whole && x.CmpAbs(big.NewInt(1<<53)) > 0 {
				return fmt.Errorf("%d is an integer beyond 2^53, which loses digits in JSON", x)
			}
		}
	}
	return nil
}

// optionsFirst returns an object in JSON with its arrays last, so that the service knows the options when it reads the matrices.
func optionsFirst(body []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || len(members) == 0 {
		return body
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	rank := func(name string) int {
		if name == "__metadata__" { // of safetensors has the options
			return 0
		} else if members[name][0] != '[' {
			return 1
		}
		return 2
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := rank(names[i]), rank(names[j])
		return a < b || a == b && names[i] < names[j]
	})
	ordered, before := make([]byte, 0, len(body)), byte('{')
	for _, name := range names {
		text, _ := json.Marshal(name) // a text is always JSON
		ordered = append(append(append(append(ordered, before), text...), ':'), members[name]...)
		before = ','
	}
	return append(ordered, '}')
}

// A Tensor is a number, a matrix, or a stack of matrices, with its numbers in the order of the rows. In JSON it is an array of
// arrays, where null is −∞; read from JSON, its data is a []float64.
type Tensor struct {
	Shape []int
	Data  any // a []float32, []float64, []int64, []int32, []uint8 or []bool
}

var types = map[string]reflect.Type{
	"F32": reflect.TypeOf([]float32{}), "F64": reflect.TypeOf([]float64{}), "BOOL": reflect.TypeOf([]bool{}),
	"I64": reflect.TypeOf([]int64{}), "I32": reflect.TypeOf([]int32{}), "U8": reflect.TypeOf([]uint8{}),
}

// dtype returns the name of a tensor's type in safetensors, if the tensor has as much data as its shape says.
func (t Tensor) dtype() (string, error) {
	for name, data := range types {
		if reflect.TypeOf(t.Data) != data {
			continue
		}
		if count := reflect.ValueOf(t.Data).Len(); count != product(t.Shape) {
			return "", fmt.Errorf("the data of a tensor has the length %d, which does not fit the shape %v", count, t.Shape)
		}
		return name, nil
	}
	return "", fmt.Errorf("the data of a tensor is a %T, not a []float32, []float64, []int64, []int32, []uint8 or []bool", t.Data)
}

// product returns how many numbers a tensor has, or -1 if it cannot have this shape.
func product(shape []int) int {
	count := 1
	for _, size := range shape {
		if size < 0 || size > 0 && count > math.MaxInt/size {
			return -1
		}
		count *= size
	}
	return count
}

// Float64s returns the numbers of a tensor of any type. Those of bool are 1 and 0.
func (t Tensor) Float64s() []float64 {
	if data, ok := t.Data.([]float64); ok {
		return data
	}
	data := reflect.ValueOf(t.Data)
	numbers := make([]float64, data.Len())
	for i := range numbers {
		if element := data.Index(i); element.Kind() != reflect.Bool {
			numbers[i] = element.Convert(reflect.TypeOf(0.0)).Float()
		} else if element.Bool() {
			numbers[i] = 1
		}
	}
	return numbers
}

// MarshalJSON writes arrays of arrays.
func (t Tensor) MarshalJSON() ([]byte, error) {
	if _, err := t.dtype(); err != nil {
		return nil, err
	}
	data, at := reflect.ValueOf(t.Data), 0
	var nested func(shape []int) any
	nested = func(shape []int) any {
		if len(shape) == 0 {
			element := data.Index(at)
			if at++; element.CanFloat() && math.IsInf(element.Float(), -1) {
				return nil
			}
			return element.Interface()
		}
		list := make([]any, shape[0])
		for i := range list {
			list[i] = nested(shape[1:])
		}
		return list
	}
	return json.Marshal(nested(t.Shape))
}

// UnmarshalJSON reads a number or arrays of numbers.
func (t *Tensor) UnmarshalJSON(text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	shape, numbers := []int{}, []float64{}
	for list, ok := value.([]any); ok; list, ok = list[0].([]any) {
		if shape = append(shape, len(list)); len(list) == 0 {
			break
		}
	}
	var add func(value any, shape []int) error
	add = func(value any, shape []int) error {
		list, ok := value.([]any)
		number, is := value.(float64)
		switch {
		case ok && len(shape) > 0 && shape[0] == len(list):
			for _, member := range list {
				if err := add(member, shape[1:]); err != nil {
					return err
				}
			}
		case !ok && !is && value != nil:
			return fmt.Errorf("%v is no number of a tensor", value)
		case ok || len(shape) > 0:
			return errors.New("the rows of a tensor differ in length")
		case is:
			numbers = append(numbers, number)
		default:
			numbers = append(numbers, math.Inf(-1))
		}
		return nil
	}
	if err := add(value, shape); err != nil {
		return err
	}
	t.Shape, t.Data = shape, numbers
	return nil
}

// A described tensor is one in the header of safetensors.
type described struct {
	Dtype   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"`
}

// pack returns safetensors: the length of a JSON text, the text, and the bytes of the tensors.
func pack(tensors map[string]Tensor, options map[string]any) ([]byte, error) {
	head, metadata := map[string]any{}, map[string]string{}
	var numbers bytes.Buffer
	for name, tensor := range tensors {
		dtype, err := tensor.dtype()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		begin := numbers.Len()
		binary.Write(&numbers, binary.LittleEndian, tensor.Data) // a buffer takes all that it gets
		// A number without axes has the shape [], which is no null.
		head[name] = described{dtype, append([]int{}, tensor.Shape...), []int{begin, numbers.Len()}}
	}
	for name, value := range options {
		text, err := encode(value)
		if err != nil {
			return nil, err
		}
		metadata[name] = string(text)
	}
	head["__metadata__"] = metadata
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	text = optionsFirst(text)
	body := append(make([]byte, 8), text...)
	binary.LittleEndian.PutUint64(body, uint64(len(text)))
	return append(body, numbers.Bytes()...), nil
}

func unpack(body []byte) (map[string]Tensor, error) {
	if len(body) < 8 || binary.LittleEndian.Uint64(body) > uint64(len(body)-8) {
		return nil, errors.New("it is cut")
	}
	start := 8 + int(binary.LittleEndian.Uint64(body))
	var head map[string]json.RawMessage
	if err := json.Unmarshal(body[8:start], &head); err != nil {
		return nil, err
	}
	delete(head, "__metadata__")
	results := map[string]Tensor{}
	for name, text := range head {
		var found described
		if err := json.Unmarshal(text, &found); err != nil {
			return nil, err
		}
		data, known := types[found.Dtype]
		if !known {
			return nil, fmt.Errorf(`%s has the type %s; the option "dtype": "float32" avoids it`, name, found.Dtype)
		}
		if found.Shape == nil || len(found.Offsets) != 2 {
			return nil, fmt.Errorf("%s has no shape or no offsets", name)
		}
		begin, end, count, size := found.Offsets[0], found.Offsets[1], product(found.Shape), int(data.Elem().Size())
		if begin < 0 || end < begin || end > len(body)-start || (end-begin)%size != 0 || count != (end-begin)/size {
			return nil, fmt.Errorf("%s is cut", name)
		}
		numbers := reflect.MakeSlice(data, count, count).Interface()
		if err := binary.Read(bytes.NewReader(body[start+begin:start+end]), binary.LittleEndian, numbers); err != nil {
			return nil, err
		}
		results[name] = Tensor{found.Shape, numbers}
	}
	return results, nil
}
