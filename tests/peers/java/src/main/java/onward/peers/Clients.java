package onward.peers;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import com.fasterxml.jackson.databind.JsonNode;
import reactor.core.publisher.Hooks;

/**
 * Connections of the Java reference client to a broker: requesters, destinations or both, as many
 * as asked for, since a JVM takes its time to start. It ends when standard input does.
 *
 * <pre>java -cp ... onward.peers.Clients</pre>
 *
 * It reads one JSON object a line. Each has an "id", which the answer repeats:
 *
 * <pre>
 * "do": "connect"   "uri": as {@link Access} takes it, or several with a comma between,
 *                   of which the next is connected to when a connection ends,
 *                   "service", "route_id", "tags",
 *                   "options": "fragment" (bytes of a frame), "lease" (requests that others may send)
 *                   answer: "outcome" is "connected" or "failed"; the "id" is the connection's
 * "do": "request"   "connection", "interaction", "argument", "routing", "tags", "bearer" (a
 *                   token in the request's own metadata)
 *                   answer: "elements" and "outcome", "completed" or "failed", the latter with
 *                   "code" (null if it was no RSocket error) and "message"
 * "do": "close"     "connection"; answer: "outcome" is "closed"
 * </pre>
 *
 * A command that cannot be carried out is answered as a request that failed without an RSocket
 * error, whichever it is. A line that is no command at all ends the program.
 *
 * The interactions are those of {@link Requests}; what a destination answers, and the events it
 * prints, are those of {@link Destination}. The key of a tag is the name of a WellKnownKey, such as
 * SERVICE_NAME, or any other text.
 */
public final class Clients {

  private final Map<Integer, Connection> connections = new ConcurrentHashMap<>();

  private Clients() {}

  public static void main(String[] arguments) {
    // Closing a connection drops an error, which by default is logged with its stack.
    Hooks.onErrorDropped(error -> {});
    try {
      Lines.read(new Clients()::take);
    } catch (IOException | RuntimeException error) {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
    Runtime.getRuntime().halt(0);
  }

  /** Carry out a command; whatever it throws is its own failure, and others follow it. */
  private void take(JsonNode command) {
    int id = command.get("id").asInt();
    try {
      execute(id, command);
    } catch (RuntimeException error) {
      Requests.failed(id, error);
    }
  }

  private void execute(int id, JsonNode command) {
    switch (command.get("do").asText()) {
      case "connect" -> connect(id, command);
      case "request" -> request(id, command);
      case "close" -> close(id, command);
      default -> throw new IllegalArgumentException("no such command: " + command);
    }
  }

  private void connect(int id, JsonNode command) {
    Connection connection = new Connection(id, command);
    connections.put(id, connection);
    connection
        .open()
        .subscribe(
            opened -> Lines.report("id", id, "outcome", "connected"),
            error -> Lines.report("id", id, "outcome", "failed", "message", error.toString()));
  }

  private void request(int id, JsonNode command) {
    Requests.start(id, connection(command), command);
  }

  private void close(int id, JsonNode command) {
    connection(command).close();
    Lines.report("id", id, "outcome", "closed");
  }

  private Connection connection(JsonNode command) {
    Connection connection = connections.get(command.path("connection").asInt());
    if (connection == null) {
      throw new IllegalArgumentException("no such connection: " + command);
    }
    return connection;
  }
}
