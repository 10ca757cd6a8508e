package onward.peers;

import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.core.RSocketConnector;
import io.rsocket.core.Resume;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.util.DefaultPayload;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import reactor.core.publisher.Flux;
import reactor.util.retry.Retry;

/**
 * A requester with a session that is resumed.
 *
 * <p>Each line of standard input is `PORT METADATA`, the metadata in hexadecimal digits. It connects
 * to the port of 127.0.0.1, makes a request/response, a stream and a channel, and prints what it has
 * received as one line.
 */
public final class ResumedRequester {
  private static final Duration PATIENCE = Duration.ofSeconds(20);

  public static void main(String[] arguments) throws Exception {
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("ready");
    for (String line; (line = input.readLine()) != null; ) {
      var words = line.split(" ");
      System.out.println(run(Integer.parseInt(words[0]), HexFormat.of().parseHex(words[1])));
    }
    System.exit(0);
  }

  private static String run(int port, byte[] metadata) {
    var retry = Retry.fixedDelay(50, Duration.ofMillis(20));
    RSocket socket = null;
    try {
      socket =
          RSocketConnector.create()
              .metadataMimeType("message/x.rsocket.composite-metadata.v0")
              .dataMimeType("application/octet-stream")
              .keepAlive(Duration.ofMillis(300), Duration.ofSeconds(15))
              .resume(new Resume().retry(retry).cleanupStoreOnKeepAlive())
              .connect(TcpClientTransport.create("127.0.0.1", port))
              .block(PATIENCE);
      var answer = text(socket.requestResponse(payload("one", metadata)).block(PATIENCE));
      var stream =
          socket.requestStream(payload("3", metadata)).map(ResumedRequester::text).collectList();
      List<String> elements = stream.block(PATIENCE);
      var source = Flux.just("a", "b", "c").map(each -> payload(each, metadata));
      List<String> echoed =
          socket.requestChannel(source).map(ResumedRequester::text).collectList().block(PATIENCE);
      return answer + " " + String.join(",", elements) + " " + String.join(",", echoed);
    } catch (RuntimeException error) {
      return "failed: " + error;
    } finally {
      if (socket != null) {
        socket.dispose();
      }
    }
  }

  private static Payload payload(String data, byte[] metadata) {
    return DefaultPayload.create(data.getBytes(StandardCharsets.UTF_8), metadata);
  }

  private static String text(Payload payload) {
    try {
      return payload.getDataUtf8();
    } finally {
      payload.release();
    }
  }
}
