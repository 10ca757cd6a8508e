package onward.peers;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.UnaryOperator;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.Unpooled;
import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.SocketAcceptor;
import io.rsocket.core.RSocketConnector;
import io.rsocket.exceptions.RejectedException;
import io.rsocket.frame.decoder.PayloadDecoder;
import io.rsocket.metadata.CompositeMetadata;
import io.rsocket.metadata.CompositeMetadataCodec;
import io.rsocket.metadata.WellKnownMimeType;
import io.rsocket.test.TransportTest;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.transport.netty.server.CloseableChannel;
import io.rsocket.transport.netty.server.TcpServerTransport;
import io.rsocket.util.DefaultPayload;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.util.retry.Retry;

/**
 * rsocket-java's {@link TransportTest}, with a broker between its client and its server:
 *
 * <pre>
 * test -- RSocket -- broker -- RSocket -- the pair of client and server of the test
 * </pre>
 *
 * What the test sends is put into an envelope with an ADDRESS, the destination takes it out and
 * passes it on to the pair's server, whose answers come back as they are. The system property
 * `broker` is HOST:PORT, and `fragment` the size of frames over which payloads go in fragments.
 */
public class BrokeredTransportTest implements TransportTest {

  private static final String BROKER_FRAME = "message/x.rsocket.broker.frame.v0";
  private static final String WRAPPED = "application/x.wrapped";
  private static final String ABSENT = "application/x.absent";
  private static final Duration TIMEOUT = Duration.ofMinutes(2);
  private static final Retry UNTIL_IT_KEEPS_UP =
      Retry.backoff(20, Duration.ofMillis(20))
          .maxBackoff(Duration.ofSeconds(1))
          .filter(RejectedException.class::isInstance);

  private final String service = "pair-" + UUID.randomUUID();
  private final TransportPair<InetSocketAddress, CloseableChannel> pair =
      new TransportPair<>(
          () -> InetSocketAddress.createUnresolved("localhost", 0),
          (address, server, allocator) -> TcpClientTransport.create(server.address()),
          (address, allocator) -> TcpServerTransport.create("127.0.0.1", 0));
  private final RSocket destination =
      connect(service, SocketAcceptor.with(new Outward(TransportTest.super.getClient())));
  private final RSocket requester =
      connect(service + "-requester", SocketAcceptor.with(new RSocket() {}));
  private final RSocket client = new Enveloping(requester);

  @Override
  public RSocket getClient() {
    return client;
  }

  @Override
  public Duration getTimeout() {
    return TIMEOUT;
  }

  @Override
  public TransportPair<InetSocketAddress, CloseableChannel> getTransportPair() {
    return pair;
  }

  @Override
  public void close() {
    try {
      TransportTest.super.close();
    } finally {
      requester.dispose();
      destination.dispose();
    }
  }

  private static RSocket connect(String name, SocketAcceptor acceptor) {
    String[] words = System.getProperty("broker").split(":");
    RSocketConnector connector =
        RSocketConnector.create()
            .payloadDecoder(PayloadDecoder.DEFAULT)
            .metadataMimeType(WellKnownMimeType.MESSAGE_RSOCKET_COMPOSITE_METADATA.getString())
            .setupPayload(DefaultPayload.create(Unpooled.EMPTY_BUFFER, entry(routeSetup(name))))
            .acceptor(acceptor);
    int fragment = Integer.getInteger("fragment", 0);
    if (fragment > 0) {
      connector.fragment(fragment);
    }
    return connector
        .connect(TcpClientTransport.create(words[0], Integer.parseInt(words[1])))
        .block(TIMEOUT);
  }

  // --- the broker's frames ---------------------------------------------------------------------

  private static ByteBuf header(int kind, int flags) {
    return Unpooled.buffer().writeInt(1).writeShort(kind << 10 | flags);
  }

  private static ByteBuf text(ByteBuf frame, String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return frame.writeByte(bytes.length).writeBytes(bytes);
  }

  private static ByteBuf routeSetup(String name) {
    UUID id = UUID.randomUUID();
    ByteBuf frame = header(1, 0).writeLong(id.getMostSignificantBits());
    return text(frame.writeLong(id.getLeastSignificantBits()), name);
  }

  private static ByteBuf address(String service) {
    return text(header(5, 0x080).writeZero(16).writeByte(0x81), service);
  }

  private static ByteBuf entry(ByteBuf frame) {
    CompositeByteBuf metadata = Unpooled.compositeBuffer();
    CompositeMetadataCodec.encodeAndAddMetadata(
        metadata, ByteBufAllocator.DEFAULT, BROKER_FRAME, frame);
    return metadata;
  }

  private static Payload copy(ByteBuffer data, ByteBuf metadata) {
    ByteBuffer bytes = metadata == null ? null : ByteBuffer.allocate(metadata.readableBytes());
    if (bytes != null) {
      metadata.getBytes(metadata.readerIndex(), bytes);
      bytes.flip();
    }
    return DefaultPayload.create(data, bytes);
  }

  /** What sends what it is given in an envelope. Of a channel that is the first payload. */
  private final class Enveloping implements RSocket {

    private final RSocket broker;

    private Enveloping(RSocket broker) {
      this.broker = broker;
    }

    private Payload wrap(Payload payload) {
      CompositeByteBuf metadata = (CompositeByteBuf) entry(address(service));
      ByteBuf own = payload.hasMetadata() ? Unpooled.copiedBuffer(payload.metadata()) : null;
      CompositeMetadataCodec.encodeAndAddMetadata(
          metadata,
          ByteBufAllocator.DEFAULT,
          own == null ? ABSENT : WRAPPED,
          own == null ? Unpooled.EMPTY_BUFFER : own);
      Payload wrapped = copy(ByteBuffer.wrap(bytesOf(payload.data())), metadata);
      metadata.release();
      payload.release();
      return wrapped;
    }

    @Override
    public Mono<Void> fireAndForget(Payload payload) {
      return broker.fireAndForget(wrap(payload));
    }

    @Override
    public Mono<Payload> requestResponse(Payload payload) {
      Payload wrapped = wrap(payload);
      // Fifty large ones at once may find the destination behind with reading: nothing was handed
      // over then, and it is asked again.
      return Mono.defer(() -> broker.requestResponse(wrapped)).retryWhen(UNTIL_IT_KEEPS_UP);
    }

    @Override
    public Flux<Payload> requestStream(Payload payload) {
      return broker.requestStream(wrap(payload));
    }

    @Override
    public Flux<Payload> requestChannel(Publisher<Payload> payloads) {
      return broker.requestChannel(firstBy(payloads, this::wrap));
    }

    @Override
    public Mono<Void> metadataPush(Payload payload) {
      return broker.metadataPush(wrap(payload));
    }
  }

  /** What takes requests out of their envelopes and passes them on. */
  private static final class Outward implements RSocket {

    private final RSocket inner;

    private Outward(RSocket inner) {
      this.inner = inner;
    }

    private static Payload unwrap(Payload payload) {
      ByteBuf own = null;
      for (CompositeMetadata.Entry entry : new CompositeMetadata(payload.sliceMetadata(), false)) {
        if (WRAPPED.equals(entry.getMimeType())) {
          own = entry.getContent();
        }
      }
      Payload unwrapped = copy(ByteBuffer.wrap(bytesOf(payload.data())), own);
      payload.release();
      return unwrapped;
    }

    @Override
    public Mono<Void> fireAndForget(Payload payload) {
      return inner.fireAndForget(unwrap(payload));
    }

    @Override
    public Mono<Payload> requestResponse(Payload payload) {
      return inner.requestResponse(unwrap(payload));
    }

    @Override
    public Flux<Payload> requestStream(Payload payload) {
      return inner.requestStream(unwrap(payload));
    }

    @Override
    public Flux<Payload> requestChannel(Publisher<Payload> payloads) {
      return inner.requestChannel(firstBy(payloads, Outward::unwrap));
    }

    @Override
    public Mono<Void> metadataPush(Payload payload) {
      return inner.metadataPush(unwrap(payload));
    }
  }

  private static Flux<Payload> firstBy(Publisher<Payload> payloads, UnaryOperator<Payload> change) {
    AtomicBoolean begun = new AtomicBoolean();
    return Flux.from(payloads)
        .map(payload -> begun.compareAndSet(false, true) ? change.apply(payload) : payload);
  }

  private static byte[] bytesOf(ByteBuf buffer) {
    byte[] bytes = new byte[buffer.readableBytes()];
    buffer.getBytes(buffer.readerIndex(), bytes);
    return bytes;
  }
}
