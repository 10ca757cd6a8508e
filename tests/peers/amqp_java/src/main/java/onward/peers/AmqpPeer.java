package onward.peers;

import java.io.FileInputStream;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.ErrorCondition;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientConnectionRemotelyClosedException;
import org.apache.qpid.protonj2.client.exceptions.ClientResourceRemotelyClosedException;
import org.apache.qpid.protonj2.client.impl.ClientTrackable;
import org.apache.qpid.protonj2.engine.OutgoingDelivery;
import org.apache.qpid.protonj2.types.messaging.Rejected;

/**
 * A client of AMQP 1.0 by protonj2: java onward.peers.AmqpPeer URI ACTION ADDRESS [ARGUMENT...]
 *
 * <p>Actions, arguments, environment and output are those of ../amqp_js/peer.js.
 */
public final class AmqpPeer {
  private static final long TIMEOUT = 20;

  private AmqpPeer() {}

  public static void main(String[] arguments) throws Exception {
    List<String> rest = List.of(arguments).subList(3, arguments.length);
    System.out.println(run(URI.create(arguments[0]), arguments[1], arguments[2], rest));
    // Threads of the client may live on.
    System.exit(0);
  }

  private static String run(URI uri, String action, String address, List<String> rest)
      throws Exception {
    try (Client client = Client.create();
        Connection connection = client.connect(uri.getHost(), uri.getPort(), options(uri))) {
      return json(
          switch (action) {
            case "send" -> send(connection, address, rest);
            case "receive" -> receive(connection, address, rest);
            case "drain" -> drain(connection, address, Integer.parseInt(rest.get(0)));
            case "request" -> request(connection, address, rest.get(0));
            default -> throw new IllegalArgumentException(action);
          });
    } catch (Exception error) {
      return "{\"error\": " + quoted(condition(error)) + "}";
    }
  }

  private static ConnectionOptions options(URI uri) throws Exception {
    ConnectionOptions options = new ConnectionOptions();
    String user = System.getenv("USER_NAME");
    if (user == null) {
      options.saslOptions().addAllowedMechanism("ANONYMOUS");
    } else {
      options.user(user).password(System.getenv("PASSWORD"));
    }
    if (uri.getScheme().equals("amqps")) {
      options.sslEnabled(true).sslOptions().sslContextOverride(trusting(System.getenv("CA")));
    }
    return options;
  }

  private static SSLContext trusting(String file) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (FileInputStream input = new FileInputStream(file)) {
      store.setCertificateEntry(
          "authority", CertificateFactory.getInstance("X.509").generateCertificate(input));
    }
    TrustManagerFactory trust =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context;
  }

  private static List<Object> send(Connection connection, String address, List<String> bodies)
      throws Exception {
    Sender sender = connection.openSender(address).openFuture().get(TIMEOUT, TimeUnit.SECONDS);
    List<Tracker> sent = new ArrayList<>();
    for (String each : bodies) {
      sent.add(sender.send(Message.create(body(each))));
    }
    List<Object> outcomes = new ArrayList<>();
    for (Tracker each : sent) {
      each.awaitSettlement(TIMEOUT, TimeUnit.SECONDS);
      outcomes.add(outcome(each));
    }
    return outcomes;
  }

  private static List<Object> receive(Connection connection, String address, List<String> hows)
      throws Exception {
    Receiver receiver = connection.openReceiver(address, manual());
    List<Object> bodies = new ArrayList<>();
    for (String how : hows) {
      receiver.addCredit(1);
      Delivery delivery = next(receiver);
      bodies.add(text(delivery.message().body()));
      switch (how) {
        case "reject" -> delivery.reject("shop:closed", "come back tomorrow");
        case "release" -> delivery.release();
        case "modify" -> delivery.modified(true, false);
        default -> delivery.accept();
      }
    }
    return bodies;
  }

  private static List<Object> drain(Connection connection, String address, int credit)
      throws Exception {
    Receiver receiver = connection.openReceiver(address, manual());
    receiver.openFuture().get(TIMEOUT, TimeUnit.SECONDS);
    receiver.addCredit(credit);
    receiver.drain().get(TIMEOUT, TimeUnit.SECONDS);
    List<Object> found = new ArrayList<>();
    for (Delivery each = receiver.tryReceive(); each != null; each = receiver.tryReceive()) {
      found.add(text(each.message().body()));
      each.accept();
    }
    // With credit left, this would be an error: there would be more than one window.
    receiver.addCredit(credit);
    receiver.drain().get(TIMEOUT, TimeUnit.SECONDS);
    found.add(0);
    return found;
  }

  private static List<Object> request(Connection connection, String address, String asked)
      throws Exception {
    Receiver answers = connection.openDynamicReceiver();
    Message<String> message =
        Message.create(asked).replyTo(answers.address()).correlationId("1");
    connection.openSender(address).send(message);
    Message<Object> answer = next(answers).message();
    return List.of(text(answer.body()), answer.correlationId());
  }

  private static ReceiverOptions manual() {
    return new ReceiverOptions().creditWindow(0).autoAccept(false);
  }

  private static Delivery next(Receiver receiver) throws Exception {
    Delivery delivery = receiver.receive(TIMEOUT, TimeUnit.SECONDS);
    if (delivery == null) {
      throw new IllegalStateException("no message came");
    }
    return delivery;
  }

  private static String body(String text) {
    return text.startsWith("@") ? "x".repeat(Integer.parseInt(text.substring(1))) : text;
  }

  private static String text(Object body) {
    String text =
        body instanceof byte[] bytes
            ? new String(bytes, StandardCharsets.UTF_8)
            : String.valueOf(body);
    return text.length() > 100 ? "@" + text.length() : text;
  }

  private static String outcome(Tracker tracker) throws Exception {
    DeliveryState state = tracker.remoteState();
    String name = state.getType().toString().toLowerCase();
    if (state.getType() != DeliveryState.Type.REJECTED) {
      return name;
    }
    // The client's interface does not have the condition, and its copy of the state (1.0.0) has
    // lost it: it copies the condition into the original.
    Method delivery = ClientTrackable.class.getDeclaredMethod("delivery");
    delivery.setAccessible(true);
    Rejected told = (Rejected) ((OutgoingDelivery) delivery.invoke(tracker)).getRemoteState();
    return name + " " + told.getError().getCondition();
  }

  private static String condition(Throwable error) {
    ErrorCondition told = null;
    for (Throwable each = error; each != null && told == null; each = each.getCause()) {
      if (each instanceof ClientResourceRemotelyClosedException closed) {
        told = closed.getErrorCondition();
      } else if (each instanceof ClientConnectionRemotelyClosedException closed) {
        told = closed.getErrorCondition();
      }
    }
    return told == null ? String.valueOf(error) : told.condition();
  }

  private static String json(List<Object> values) {
    return values.stream()
        .map(each -> each instanceof Integer ? each.toString() : quoted(each.toString()))
        .collect(Collectors.joining(", ", "[", "]"));
  }

  private static String quoted(String text) {
    return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
  }
}
