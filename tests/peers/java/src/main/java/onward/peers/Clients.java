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
 * "do": "connect"   "uri": tcp://HOST:PORT or ws://HOST:PORT, "service", "route_id", "tags"
 *                   answer: "outcome" is "connected" or "failed"; the "id" is the connection's
 * "do": "request"   "connection", "interaction", "argument", "routing", "tags"
 *                   answer: "elements" and "outcome", "completed" or "failed", the latter with
 *                   "code" (null if it was no RSocket error) and "message"
 * "do": "close"     "connection"; answer: "outcome" is "closed"
 * </pre>
 *
 * The interactions are those of {@link Requests}; what a destination answers, and the events it
 * prints, are those of {@link Destination}. The key of a tag is the name of a WellKnownKey, such as
 * SERVICE_NAME, or any other text.
 */
public final class Clients {

  private final Map<Integer, Connection> connections = new ConcurrentHashMap<>();

  private Clients() {}

  public static void main(String[] arguments) throws IOException {
    // Closing a connection drops an error, which by default is logged with its stack.
    Hooks.onErrorDropped(error -> {});
    Lines.read(new Clients()::execute);
    Runtime.getRuntime().halt(0);
  }

  private void execute(JsonNode command) {
    int id = command.get("id").asInt();
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
    Requests.start(id, connections.get(command.get("connection").asInt()), command);
  }

  private void close(int id, JsonNode command) {
    connections.get(command.get("connection").asInt()).close();
    Lines.report("id", id, "outcome", "closed");
  }
}
