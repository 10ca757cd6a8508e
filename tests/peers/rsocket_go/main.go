// A requester, or a destination, made with rsocket-go. It ends with standard input.
//
//	peer requester URI SERVICE [FRAGMENT]
//	peer destination URI SERVICE [FRAGMENT]
//
// The URI is tcp://HOST:PORT or ws://HOST:PORT, with TLS tls:// and wss://. Its query has the TLS
// files, authority=FILE and certificate=FILE with the key in it, and the credentials,
// simple=USER:PASSWORD or bearer=TOKEN.
//
// FRAGMENT is the size of frames over which the library cuts payloads into fragments.
//
// A requester reads lines INTERACTION=ARGUMENT, or INTERACTION@SERVICE=ARGUMENT for another service,
// and prints a line of JSON for each. What it asks and
// what a destination answers is what ../js/requester.js and ../js/destination.js say; credit of a
// requester is granted five at a time.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rsocket/rsocket-go"
	"github.com/rsocket/rsocket-go/core/transport"
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

// --- the way to the broker ----------------------------------------------------------------------

// credentials returns the entry of composite metadata for those in a query, or nothing.
func credentials(query url.Values) []byte {
	var made *extension.Authentication
	if query.Has("bearer") {
		made = extension.MustNewAuthentication("bearer", []byte(query.Get("bearer")))
	} else if query.Has("simple") {
		user, password, _ := strings.Cut(query.Get("simple"), ":")
		content := binary.BigEndian.AppendUint16(nil, uint16(len(user)))
		made = extension.MustNewAuthentication("simple", append(append(content, user...), password...))
	} else {
		return nil
	}
	entry, err := extension.NewCompositeMetadataBuilder().
		PushWellKnown(extension.MessageAuthentication, made.Bytes()).
		Build()
	if err != nil {
		panic(err)
	}
	return entry
}

func tlsOf(query url.Values) *tls.Config {
	authority, err := os.ReadFile(query.Get("authority"))
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AppendCertsFromPEM(authority)
	if file := query.Get("certificate"); file != "" {
		certificate, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config
}

func way(uri *url.URL) transport.ClientTransporter {
	switch uri.Scheme {
	case "tls":
		return rsocket.TCPClient().SetAddr(uri.Host).SetTLSConfig(tlsOf(uri.Query())).Build()
	case "ws", "wss":
		builder := rsocket.WebsocketClient().SetURL(uri.Scheme + "://" + uri.Host)
		if uri.Scheme == "wss" {
			builder.SetTLSConfig(tlsOf(uri.Query()))
		}
		return builder.Build()
	default:
		return rsocket.TCPClient().SetAddr(uri.Host).Build()
	}
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

func ask(client rsocket.Client, service, name, argument string) {
	interaction, other, found := strings.Cut(name, "@")
	if found {
		service = other
	}
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
	outcome(name, elements, err)
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
	// COUNT, or COUNT TEXT: then the text is in each element, behind its number.
	count, rest, found := strings.Cut(received("request_stream", request), " ")
	if found {
		rest = " " + rest
	}
	last, err := strconv.Atoi(count)
	if err != nil {
		last = endless
	}
	answers := make([]payload.Payload, 0, last)
	for number := 1; number <= last; number++ {
		answers = append(answers, answerTo(strconv.Itoa(number)+rest))
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
	role, service := os.Args[1], os.Args[3]
	uri, err := url.Parse(os.Args[2])
	if err != nil {
		panic(err)
	}
	name := service
	if role == "requester" {
		name = "go-requester"
	}
	builder := rsocket.Connect().
		MetadataMimeType(composite).
		DataMimeType("text/plain").
		SetupPayload(payload.New(nil, append(routeSetup(name), credentials(uri.Query())...)))
	if len(os.Args) > 4 {
		size, _ := strconv.Atoi(os.Args[4])
		builder = builder.Fragment(size)
	}
	client, err := builder.
		Acceptor(func(context.Context, rsocket.RSocket) rsocket.RSocket { return responder() }).
		Transport(way(uri)).
		Start(context.Background())
	if err != nil {
		report(map[string]any{"event": "failed", "message": err.Error()})
		os.Exit(1)
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
