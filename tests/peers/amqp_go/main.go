// A client of AMQP 1.0 by go-amqp: peer URI ACTION ADDRESS [ARGUMENT...]
//
// Actions, arguments, environment and output are those of ../amqp_js/peer.js, without drain:
// go-amqp asks for it with a credit of 0, and Proton's engine has no answer to that.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

func body(text string) []byte {
	if rest, found := strings.CutPrefix(text, "@"); found {
		size, _ := strconv.Atoi(rest)
		return []byte(strings.Repeat("x", size))
	}
	return []byte(text)
}

func text(message *amqp.Message) string {
	found := string(message.GetData())
	if message.Value != nil {
		found = fmt.Sprint(message.Value)
	}
	if len(found) > 100 {
		return fmt.Sprintf("@%d", len(found))
	}
	return found
}

func end(report any) {
	line, _ := json.Marshal(report)
	fmt.Println(string(line))
}

func outcome(state amqp.DeliveryState) string {
	switch found := state.(type) {
	case *amqp.StateAccepted:
		return "accepted"
	case *amqp.StateRejected:
		if found.Error != nil {
			return "rejected " + string(found.Error.Condition)
		}
		return "rejected"
	case *amqp.StateReleased:
		return "released"
	case *amqp.StateModified:
		return "modified"
	}
	return fmt.Sprint(state)
}

func settle(ctx context.Context, receiver *amqp.Receiver, message *amqp.Message, how string) error {
	switch how {
	case "reject":
		return receiver.RejectMessage(ctx, message, &amqp.Error{
			Condition: "shop:closed", Description: "come back tomorrow",
		})
	case "release":
		return receiver.ReleaseMessage(ctx, message)
	case "modify":
		return receiver.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true})
	}
	return receiver.AcceptMessage(ctx, message)
}

func send(ctx context.Context, session *amqp.Session, address string, bodies []string) (any, error) {
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		return nil, err
	}
	receipts := []amqp.SendReceipt{}
	for _, each := range bodies {
		receipt, err := sender.SendWithReceipt(ctx, amqp.NewMessage(body(each)), nil)
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, receipt)
	}
	outcomes := []string{}
	for _, each := range receipts {
		state, err := each.Wait(ctx)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, outcome(state))
	}
	return outcomes, nil
}

func receive(ctx context.Context, session *amqp.Session, address string, hows []string) (any, error) {
	receiver, err := session.NewReceiver(ctx, address, &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		return nil, err
	}
	bodies := []string{}
	for _, how := range hows {
		if err := receiver.IssueCredit(1); err != nil {
			return nil, err
		}
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, text(message))
		if err := settle(ctx, receiver, message, how); err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

func request(ctx context.Context, session *amqp.Session, address string, asked string) (any, error) {
	receiver, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return nil, err
	}
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		return nil, err
	}
	name := receiver.Address()
	message := &amqp.Message{Value: asked, Properties: &amqp.MessageProperties{ReplyTo: &name, CorrelationID: "1"}}
	if err := sender.Send(ctx, message, nil); err != nil {
		return nil, err
	}
	answer, err := receiver.Receive(ctx, nil)
	if err != nil {
		return nil, err
	}
	return []any{text(answer), answer.Properties.CorrelationID}, receiver.AcceptMessage(ctx, answer)
}

func run(ctx context.Context, uri, action, address string, rest []string) (any, error) {
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}
	if name := os.Getenv("USER_NAME"); name != "" {
		options.SASLType = amqp.SASLTypePlain(name, os.Getenv("PASSWORD"))
	}
	if file := os.Getenv("CA"); file != "" {
		authority, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(authority)
		options.TLSConfig = &tls.Config{RootCAs: pool, ServerName: "localhost"}
	}
	connection, err := amqp.Dial(ctx, uri, options)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	switch action {
	case "send":
		return send(ctx, session, address, rest)
	case "receive":
		return receive(ctx, session, address, rest)
	case "request":
		return request(ctx, session, address, rest[0])
	}
	return nil, errors.New("no such action: " + action)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	arguments := os.Args[1:]
	report, err := run(ctx, arguments[0], arguments[1], arguments[2], arguments[3:])
	var link *amqp.LinkError
	var connection *amqp.ConnError
	var plain *amqp.Error
	switch {
	case errors.As(err, &plain):
		end(map[string]string{"error": string(plain.Condition)})
	case errors.As(err, &link) && link.RemoteErr != nil:
		end(map[string]string{"error": string(link.RemoteErr.Condition)})
	case errors.As(err, &connection) && connection.RemoteErr != nil:
		end(map[string]string{"error": string(connection.RemoteErr.Condition)})
	case err != nil:
		end(map[string]string{"error": err.Error()})
	default:
		end(report)
	}
}
