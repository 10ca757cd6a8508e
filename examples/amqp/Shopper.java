// A client of AMQP 1.0 with protonj2 for Java: it sends, asks, and receives.
// It prints "order: accepted", "price: 3 each" and "bill: 36".
// --8<-- [start:program]
import java.net.URI;
import java.nio.charset.StandardCharsets;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;

public final class Shopper {
  public static void main(String[] arguments) throws Exception {
    URI uri = URI.create(arguments.length > 0 ? arguments[0] : "amqp://127.0.0.1:5672");
    try (Client client = Client.create();
        Connection connection = client.connect(uri.getHost(), uri.getPort())) {
      DeliveryState state =
          connection
              .openSender("orders")
              .send(Message.create("12 apples"))
              .awaitSettlement()
              .remoteState();
      System.out.println("order: " + (state.isAccepted() ? "accepted" : state.getType()));

      Receiver answers = connection.openDynamicReceiver();
      Message<String> question = Message.create("apples").replyTo(answers.address());
      connection.openSender("prices").send(question);
      System.out.println("price: " + answers.receive().message().body());

      ReceiverOptions one = new ReceiverOptions().creditWindow(0).autoAccept(false);
      Receiver bills = connection.openReceiver("bills", one).addCredit(1);
      Delivery bill = bills.receive();
      byte[] body = (byte[]) bill.message().body();
      System.out.println("bill: " + new String(body, StandardCharsets.UTF_8));
      bill.accept();
    }
  }
}
// --8<-- [end:program]
