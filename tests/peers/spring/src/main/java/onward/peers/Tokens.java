package onward.peers;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Base64;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.nimbusds.jose.JOSEException;
import com.nimbusds.jose.JWSAlgorithm;
import com.nimbusds.jose.JWSHeader;
import com.nimbusds.jose.JWSSigner;
import com.nimbusds.jose.crypto.ECDSASigner;
import com.nimbusds.jose.crypto.MACSigner;
import com.nimbusds.jose.crypto.RSASSASigner;
import com.nimbusds.jose.jwk.Curve;
import com.nimbusds.jose.jwk.ECKey;
import com.nimbusds.jose.jwk.RSAKey;
import com.nimbusds.jose.jwk.gen.ECKeyGenerator;
import com.nimbusds.jose.jwk.gen.RSAKeyGenerator;
import com.nimbusds.jwt.JWTClaimsSet;
import com.nimbusds.jwt.PlainJWT;
import com.nimbusds.jwt.SignedJWT;

/**
 * Prints keys and JSON Web Tokens that nimbus-jose-jwt has made, as ../rsocket_js/jwt.js does. This
 * library signs with Ed25519 only with another one beside it.
 *
 * <pre>java -cp ... onward.peers.Tokens ISSUER AUDIENCE</pre>
 */
public final class Tokens {

  private static final int LIFETIME = 600;

  private Tokens() {}

  public static void main(String[] arguments) throws Exception {
    JWTClaimsSet claims =
        new JWTClaimsSet.Builder()
            .issuer(arguments[0])
            .audience(arguments[1])
            .subject("billing")
            .expirationTime(Date.from(Instant.now().plusSeconds(LIFETIME)))
            .build();
    ECKey curve = new ECKeyGenerator(Curve.P_256).keyID("ES256").generate();
    RSAKey rsa = new RSAKeyGenerator(2048).keyID("RS256").generate();
    Map<String, String> tokens = new LinkedHashMap<>();
    tokens.put("ES256", signed(JWSAlgorithm.ES256, "ES256", new ECDSASigner(curve), claims));
    tokens.put("RS256", signed(JWSAlgorithm.RS256, "RS256", new RSASSASigner(rsa), claims));
    tokens.put("HS256 by ES256", forged("ES256", curve.toECPublicKey().getEncoded(), claims));
    tokens.put("HS256 by RS256", forged("RS256", rsa.toRSAPublicKey().getEncoded(), claims));
    tokens.put("none", new PlainJWT(claims).serialize());
    List<Object> keys =
        List.of(curve.toPublicJWK().toJSONObject(), rsa.toPublicJWK().toJSONObject());
    System.out.println(
        new ObjectMapper().writeValueAsString(Map.of("keys", keys, "tokens", tokens)));
  }

  private static String signed(
      JWSAlgorithm algorithm, String key, JWSSigner signer, JWTClaimsSet claims)
      throws JOSEException {
    SignedJWT token = new SignedJWT(new JWSHeader.Builder(algorithm).keyID(key).build(), claims);
    token.sign(signer);
    return token.serialize();
  }

  private static String forged(String key, byte[] publicKey, JWTClaimsSet claims)
      throws JOSEException {
    String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(publicKey);
    String text = "-----BEGIN PUBLIC KEY-----\n" + body + "\n-----END PUBLIC KEY-----\n";
    JWSSigner signer = new MACSigner(text.getBytes(StandardCharsets.UTF_8));
    return signed(JWSAlgorithm.HS256, key, signer, claims);
  }
}
