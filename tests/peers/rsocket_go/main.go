// A requester, or a destination, made with rsocket-go. It ends with standard input.
//
//	peer requester HOST:PORT SERVICE [FRAGMENT]
//	peer destination HOST:PORT SERVICE [FRAGMENT]
//
// FRAGMENT is the size of frames over which the library cuts payloads into fragments.
//
// A requester reads lines INTERACTION=ARGUMENT and prints a line of JSON for each. What it asks and
// what a destination answers is what ../js/requester.js and ../js/destination.js say; credit of a
// requester is granted five at a time.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rsocket/rsocket-go"
	"github.com/rsocket/rsocket-go/extension"
	"github.com/rsocket/rsocket-go/payload"
	"github.com/rsocket/rsocket-go/rx"
	"github.com/rsocket/rsocket-go/rx/flux"
	"github.com/rsocket/rsocket-go/rx/mono"
)

const (
	brokerFrame = "message/x.rsocket.broker.frame.v0"
	composite   = "message/x.rsocket.composite-metadata.v0"
	routing     = "message/x.rsocket.routing.v0"
	credit      = 5
	patience    = 15 * time.Second
	endless     = 10_000 // more elements than anybody wants
)

var printing sync.Mutex

func report(line map[string]any) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		panic(err)
	}
}

// --- the broker's frames ------------------------------------------------------------------------

func header(kind, flags uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{0, 0, 0, 1}, kind<<10|flags)
}

func text(value string) []byte {
	return append([]byte{byte(len(value))}, value...)
}

func entries(frame []byte, route string) []byte {
	builder := extension.NewCompositeMetadataBuilder().Push(brokerFrame, frame)
	if route != "" {
		builder.Push(routing, text(route))
	}
	made, err := builder.Build()
	if err != nil {
		panic(err)
	}
	return made
}

func routeSetup(service string) []byte {
	id := make([]byte, 16)
	binary.BigEndian.PutUint64(id[8:], uint64(os.Getpid()))
	return entries(append(append(header(1, 0), id...), text(service)...), "")
}

func request(service, route, data string) payload.Payload {
	frame := append(header(5, 0x080), make([]byte, 16)...)
	frame = append(append(frame, 0x81), text(service)...)
	return payload.New([]byte(data), entries(frame, route))
}

func routeIn(request payload.Payload) string {
	metadata, _ := request.Metadata()
	scanner := extension.NewCompositeMetadataBytes(metadata).Scanner()
	for scanner.Scan() {
		mime, content, err := scanner.Metadata()
		if err == nil && mime == routing {
			return string(content[1:])
		}
	}
	return ""
}

// --- requester ----------------------------------------------------------------------------------

func outcome(interaction string, elements []string, err error) {
	line := map[string]any{"interaction": interaction, "elements": elements, "outcome": "completed"}
	if err != nil {
		line["outcome"], line["code"], line["message"] = "failed", nil, err.Error()
		var known rsocket.Error
		if errors.As(err, &known) {
			line["code"], line["message"] = known.ErrorCode(), string(known.ErrorData())
		}
	}
	report(line)
}

// collect takes the elements of a stream, all of them or as many as are wanted.
func collect(answers flux.Flux, wanted int) ([]string, error) {
	elements, done := []string{}, make(chan error, 2)
	var stream rx.Subscription
	answers.Subscribe(
		context.Background(),
		rx.OnSubscribe(func(_ context.Context, subscription rx.Subscription) {
			stream = subscription
			stream.Request(credit)
		}),
		rx.OnNext(func(element payload.Payload) error {
			elements = append(elements, strings.Clone(element.DataUTF8()))
			if len(elements) == wanted {
				stream.Cancel()
				done <- nil
			} else if len(elements)%credit == 0 {
				stream.Request(credit)
			}
			return nil
		}),
		rx.OnComplete(func() { done <- nil }),
		rx.OnError(func(err error) { done <- err }),
	)
	select {
	case err := <-done:
		return elements, err
	case <-time.After(patience):
		return elements, errors.New("no end in time")
	}
}

func ask(client rsocket.Client, service, interaction, argument string) {
	elements, err := []string{}, error(nil)
	switch interaction {
	case "fire_and_forget":
		client.FireAndForget(request(service, "echo", argument))
	case "metadata_push":
		client.MetadataPush(request(service, argument, ""))
	case "request_response":
		limited, cancel := context.WithTimeout(context.Background(), patience)
		answer, failed := client.RequestResponse(request(service, "echo", argument)).Block(limited)
		cancel()
		if err = failed; err == nil && answer != nil {
			elements = append(elements, answer.DataUTF8())
		}
	case "request_stream":
		elements, err = collect(client.RequestStream(request(service, "echo", argument)), -1)
	case "first_of_stream":
		wanted, _ := strconv.Atoi(argument)
		elements, err = collect(client.RequestStream(request(service, "echo", "endless")), wanted)
	case "request_channel":
		asked := []payload.Payload{}
		for _, each := range strings.Split(argument, ",") {
			asked = append(asked, request(service, "echo", each))
		}
		elements, err = collect(client.RequestChannel(flux.FromSlice(asked)), -1)
	default:
		err = errors.New("no such interaction: " + interaction)
	}
	outcome(interaction, elements, err)
}

// --- destination --------------------------------------------------------------------------------

func received(interaction string, request payload.Payload) string {
	data := strings.Clone(request.DataUTF8())
	report(map[string]any{
		"event": "received", "interaction": interaction, "data": data, "route": routeIn(request),
	})
	return data
}

func answerTo(text string) payload.Payload {
	return payload.NewString(text+" from go", "")
}

func respond(request payload.Payload) mono.Mono {
	switch text := received("request_response", request); text {
	case "fail":
		return mono.Error(errors.New("refused by go"))
	case "hold":
		return mono.Create(func(context.Context, mono.Sink) {})
	default:
		return mono.Just(answerTo(text))
	}
}

func stream(request payload.Payload) flux.Flux {
	last, err := strconv.Atoi(received("request_stream", request))
	if err != nil {
		last = endless
	}
	answers := make([]payload.Payload, 0, last)
	for number := 1; number <= last; number++ {
		answers = append(answers, answerTo(strconv.Itoa(number)))
	}
	sent := 0
	return flux.FromSlice(answers).
		DoOnNext(func(payload.Payload) error {
			sent++
			return nil
		}).
		DoFinally(func(signal rx.SignalType) {
			if signal == rx.SignalCancel {
				report(map[string]any{
					"event": "canceled", "interaction": "request_stream", "sent": sent,
				})
			}
		})
}

func channel(requests flux.Flux) flux.Flux {
	begun := false
	return requests.Map(func(request payload.Payload) (payload.Payload, error) {
		text := strings.Clone(request.DataUTF8())
		if !begun {
			begun = true
			received("request_channel", request)
		}
		return answerTo(text), nil
	})
}

func responder() rsocket.RSocket {
	return rsocket.NewAbstractSocket(
		rsocket.RequestResponse(respond),
		rsocket.RequestStream(stream),
		rsocket.RequestChannel(channel),
		rsocket.FireAndForget(func(request payload.Payload) { received("fire_and_forget", request) }),
		rsocket.MetadataPush(func(request payload.Payload) { received("metadata_push", request) }),
	)
}

// --- both ---------------------------------------------------------------------------------------

func main() {
	role, place, service := os.Args[1], os.Args[2], os.Args[3]
	name := service
	if role == "requester" {
		name = "go-requester"
	}
	builder := rsocket.Connect().
		MetadataMimeType(composite).
		DataMimeType("text/plain").
		SetupPayload(payload.New(nil, routeSetup(name)))
	if len(os.Args) > 4 {
		size, _ := strconv.Atoi(os.Args[4])
		builder = builder.Fragment(size)
	}
	client, err := builder.
		Acceptor(func(context.Context, rsocket.RSocket) rsocket.RSocket { return responder() }).
		Transport(rsocket.TCPClient().SetAddr(place).Build()).
		Start(context.Background())
	if err != nil {
		panic(err)
	}
	if role == "destination" {
		report(map[string]any{"event": "ready"})
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		interaction, argument, _ := strings.Cut(lines.Text(), "=")
		ask(client, service, interaction, argument)
	}
}
