// A client of AMQP 1.0 with go-amqp: it sends, asks, and receives.
// It prints "order: accepted", "price: 3 each" and "bill: 36".
// --8<-- [start:program]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	uri := "amqp://127.0.0.1:5672"
	if len(os.Args) > 1 {
		uri = os.Args[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()} // SASL is required
	connection := must(amqp.Dial(ctx, uri, options))
	defer connection.Close()
	session := must(connection.NewSession(ctx, nil))

	orders := must(session.NewSender(ctx, "orders", nil))
	receipt := must(orders.SendWithReceipt(ctx, amqp.NewMessage([]byte("12 apples")), nil))
	switch state := must(receipt.Wait(ctx)).(type) {
	case *amqp.StateAccepted:
		fmt.Println("order: accepted")
	default: // *amqp.StateRejected, *amqp.StateReleased, *amqp.StateModified
		fmt.Printf("order: %T\n", state)
	}

	dynamic := &amqp.ReceiverOptions{DynamicAddress: true}
	answers := must(session.NewReceiver(ctx, "", dynamic))
	address := answers.Address()
	question := &amqp.Message{Value: "apples", Properties: &amqp.MessageProperties{ReplyTo: &address}}
	prices := must(session.NewSender(ctx, "prices", nil))
	if err := prices.Send(ctx, question, nil); err != nil {
		log.Fatal(err)
	}
	answer := must(answers.Receive(ctx, nil))
	fmt.Println("price:", answer.Value)

	bills := must(session.NewReceiver(ctx, "bills", &amqp.ReceiverOptions{Credit: 1}))
	bill := must(bills.Receive(ctx, nil))
	fmt.Println("bill:", string(bill.GetData()))
	if err := bills.AcceptMessage(ctx, bill); err != nil {
		log.Fatal(err)
	}
}
// --8<-- [end:program]
